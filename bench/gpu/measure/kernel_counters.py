"""Our kernels under Nsight Compute, on a graph beyond the cache: traffic, hits and stalls.

`python -m bench.gpu.measure.kernel_counters SCALE` is what `ncu` watches: each op once, by our kernels.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax

from bench.gpu.measure.op_times import OP_NAMES, call_arrays
from bench.gpu.measure.timing import measuring
from bench.gpu.measure.worker import Run
from bench.ops.cases import mag_relation
from bench.ops.rows import call_of
from bench.record import ROOT
from jhgnn.ops.registry import OPS
from jhgnn.profiling.ncu import command, figures, read_csv

KERNELS = "regex:jhgnn_"


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """A row a kernel, in the order in which they ran."""
    if run.rehearsal or shutil.which("ncu") is None:
        why = "a rehearsal reads no counters" if run.rehearsal else "Nsight Compute's command `ncu` is not on PATH"
        yield {"kind": "kernel counters", "skipped": why}
        return
    watched = [sys.executable, "-m", "bench.gpu.measure.kernel_counters", str(run.sizes.op_scale)]
    with measuring(run.folder):
        done = subprocess.run(command(watched, KERNELS), cwd=ROOT, capture_output=True, text=True)
    run.kept.mkdir(parents=True, exist_ok=True)
    path = run.kept / "kernel-counters.csv"
    path.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-3:]
        raise RuntimeError(f"ncu: exit code {done.returncode}: {' | '.join(said)[:600]}")
    for launch in read_csv(path):
        told = {key: launch[key] for key in ("kernel", "grid", "block")}
        yield {"kind": "kernel counters"} | told | figures([launch])


def main() -> None:
    graph = mag_relation(float(sys.argv[1]))
    arrays = call_arrays(graph)
    for op in OP_NAMES:
        placed = graph.place(OPS[op].views("native"))
        jax.block_until_ready(jax.jit(call_of(op, "native", True))(placed, *arrays))


if __name__ == "__main__":
    main()
