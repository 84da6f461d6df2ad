"""One item of a run: `python -m bench.gpu.measure.worker REQUEST`; a line of JSON for each row it measures.

The request is JSON: `module` and its `arguments`, the run's `folder`, and whether it is a `rehearsal`. In a rehearsal
programs are traced for CUDA and run on the CPU, with the kernels' own sources in the place of the GPU's.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from bench.gpu.measure.items import IN_REHEARSAL, ON_DEVICE, Sizes
from jhgnn.runtime.platform import compiling_for

Row = dict[str, Any]
KEPT = "kept"


@dataclasses.dataclass(frozen=True)
class Run:
    """What every item is told.

    Attributes:
        folder: of the whole run, where items leave what others read.
        sizes: how much to run.
        rehearsal: whether this is none of a GPU.
    """

    folder: Path
    sizes: Sizes
    rehearsal: bool

    @property
    def kept(self) -> Path:
        """Below `folder`: what the command keeps beside the results, where it is told to."""
        return self.folder / KEPT


def main() -> None:
    request = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no row
    rehearsal = request["rehearsal"]
    run = Run(Path(request["folder"]), IN_REHEARSAL if rehearsal else ON_DEVICE, rehearsal)
    rows: Callable[..., Iterator[Row]] = importlib.import_module(f"bench.gpu.measure.{request['module']}").rows
    with rehearsing() if rehearsal else contextlib.nullcontext():
        for row in rows(run, **request["arguments"]):
            answers.write(json.dumps(row) + "\n")
            answers.flush()


@contextlib.contextmanager
def rehearsing() -> Iterator[None]:
    """Programs are traced as for CUDA; its kernels, where they could be built for the CPU, run there."""
    from jhgnn.native import cuda

    named = os.environ.get(cuda.LIBRARY_VARIABLE)
    if named:
        loaded = cuda.load(Path(named), "cpu")
        cuda._library = lambda: loaded  # type: ignore[assignment]
    if jax.default_backend() != "cpu":
        raise RuntimeError(f"a rehearsal runs on CPUs, and JAX runs on {jax.default_backend()}")
    with compiling_for("cuda"):
        yield


if __name__ == "__main__":
    main()
