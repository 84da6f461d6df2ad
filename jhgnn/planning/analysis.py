"""Memory and work of a program as compiled; kept on disk by the program's hash, since compiling takes seconds."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax

from jhgnn import native
from jhgnn.nn.recompute import compile_with_barriers
from jhgnn.planning.work import Work, work
from jhgnn.profiling.hlo import parse
from jhgnn.runtime.files import write_text

_VERSION = 2
"""Of what is counted; raise it with every change to `Work`, to the formulas behind it, or to how programs compile."""


@dataclasses.dataclass(frozen=True)
class Analysis:
    """Of one compiled program, on one device: XLA's own bytes, and the work of a call."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    work: Work

    @property
    def new_bytes(self) -> int:
        """What a call allocates beside its arguments."""
        return self.temp_bytes + self.output_bytes - self.alias_bytes


def analyse(programs: Iterable[jax.stages.Lowered]) -> list[Analysis]:
    """Compiles traced programs, or reads what is kept on disk of an earlier compilation; nothing runs.

    Equal programs are compiled once, and several at the same time, one a core, while the next ones are traced.
    """
    digests: list[str] = []
    found: dict[str, Future[Analysis]] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="jhgnn-compile") as threads:
        for lowered in programs:
            digests.append(_digest(lowered))
            if digests[-1] not in found:
                found[digests[-1]] = threads.submit(_analyse_one, digests[-1], lowered)
    return [found[digest].result() for digest in digests]


def _analyse_one(digest: str, lowered: jax.stages.Lowered) -> Analysis:
    file = _file(digest)
    if file is not None and file.exists():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return Analysis(**found | {"work": Work(**found["work"])})
        except (ValueError, TypeError, KeyError):
            file.unlink(missing_ok=True)  # it was cut short, or is of another version
    analysis = analyse_compiled(compile_with_barriers(lowered, to_run=False))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(dataclasses.asdict(analysis)))
    return analysis


def analyse_compiled(compiled: jax.stages.Compiled) -> Analysis:
    """The same of a program that is compiled already."""
    stats = compiled.memory_analysis()
    kinds = ("argument", "output", "alias", "temp")
    sizes = {f"{kind}_bytes": int(getattr(stats, f"{kind}_size_in_bytes", 0)) for kind in kinds}
    return Analysis(**sizes, work=work(parse(compiled.as_text() or "")))


def _digest(lowered: jax.stages.Lowered) -> str:
    device = jax.local_devices()[0]
    built = native.instruction_set() if native.available() else "none"
    about = (_VERSION, jax.__version__, jax.lib.__version__, device.platform, device.device_kind, built)
    digest = hashlib.sha256(repr((*about, os.environ.get("XLA_FLAGS", ""))).encode())
    digest.update(lowered.as_text().encode())
    return digest.hexdigest()


def _file(digest: str) -> Path | None:
    """Beside JAX's own compiled programs; None where JAX keeps none."""
    folder = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 - mypy does not know JAX's options
    return Path(folder) / "analyses" / f"{digest}.json" if folder else None
