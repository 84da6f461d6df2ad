"""The study's programs compiled for GPUs that are not here, and times predicted from what they are made of."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.comparison.environment import machine
from bench.gpu.devices import GPUS
from bench.gpu.environment import create_gpu, gpu_python, missing, variables
from bench.recompute_study.variants import DTYPES, implementations
from bench.record import ROOT
from jhgnn.config import Config
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError

STUDIED = ("h100", "h200", "a100")

LAUNCH_S = 5e-6
"""Of a short kernel in a graph of CUDA's, with what waits for it: fitted to updates of nine cases on an H200, of which
times are predicted at 0.74 to 1.5 of what was measured, and at 1.0 in the mean (`python -m bench.gpu predicted`)."""

BANDWIDTH_SHARE = 0.7
"""Of the memory's bandwidth that kernels of gathers and elementwise work reach."""

FLOPS_SHARE = 0.5
"""Of the units' highest rate that products and elementwise work reach."""

TENSOR_FLOPS_PER_S = {
    "float32": {"a100": 156e12, "h100": 495e12, "h200": 495e12},  # TF32, which XLA takes for products of float32
    "bfloat16": {"a100": 312e12, "h100": 989e12, "h200": 989e12},
}
"""Of dense products, by NVIDIA's data sheets."""

SCATTER_S = 5e-12
"""Of an element that is added atomically without contention; with it XLA's scatters take far longer
(openxla/xla#46225), so what is predicted for programs with float scatters is a lower bound."""

FORMULA = (
    f"`launches x {LAUNCH_S * 1e6:.0f} us + max(bytes / ({BANDWIDTH_SHARE:.0%} of the bandwidth), product FLOPs /"
    f" ({FLOPS_SHARE:.0%} of the tensor cores' rate) + other FLOPs / ({FLOPS_SHARE:.0%} of the float32 units' rate))"
    f" + scattered elements x {SCATTER_S * 1e12:.0f} ps`"
)

Row = dict[str, Any]

_COMPILERS: set["subprocess.Popen[str]"] = set()
"""Processes that compile now."""


def predicted_s(row: Mapping[str, Any], gpu: str) -> float:
    """Seconds of a step on a GPU by `FORMULA`; `bench/gpu/devices.py` has the devices' figures."""
    device, work = GPUS[gpu], row["work"]
    units = device.cores * device.fpus_per_core * 2 * device.clock_ghz * 1e9
    memory_s = (work["num_bytes"] + work["native_bytes"]) / (BANDWIDTH_SHARE * device.bytes_per_s)
    products_s = work["dot_flops"] / (FLOPS_SHARE * TENSOR_FLOPS_PER_S[row["dtype"]][gpu])
    others_s = (work["flops"] + work["native_flops"]) / (FLOPS_SHARE * units)
    return float(row["launches"] * LAUNCH_S + max(memory_s, products_s + others_s) + work["scattered"] * SCATTER_S)


def compile_for(gpu: str, config: Config) -> list[Row]:
    """A row for each variant of a recipe, compiled for a GPU, on as many cores as there are.

    Raises:
        InputError: there is no environment that compiles for it, or the compiler failed.
    """
    problem = create_gpu() or missing()
    if problem:
        raise InputError(f"bench.recompute: nothing can be compiled for {gpu} here: {problem}")
    shares = list(itertools.product(implementations(config), DTYPES))
    with ThreadPoolExecutor(os.cpu_count()) as workers:  # XLA compiles a program for a GPU on one core
        try:
            found = list(workers.map(lambda share: _compiled(gpu, config, *share), shares))
            # Two dense shares of R-GCN on AIFB take 12 GiB each: what the system killed may compile alone.
            pairs = zip(shares, found, strict=True)
            done = [_compiled(gpu, config, *share) if rows is None else rows for share, rows in pairs]
        except KeyboardInterrupt:
            # The pool's threads wait for them, and XLA hears no signal while it compiles.
            for each in tuple(_COMPILERS):
                each.kill()
            raise
    killed = f"its compiler's process was killed, also alone: {machine()['memory_gib']} GiB of memory are too little"
    for index, (implementation, _) in enumerate(shares):
        if done[index] is None:  # dense masks of R-GAT's relations on mag take more than such a machine has
            done[index] = [{"implementation": implementation, "refused": killed}]
    print(file=sys.stderr)
    every = [row for rows in done for row in rows or ()]
    # Refused of both types, with the limit of the moment: once.
    return list({json.dumps(row) if "dtype" in row else row["implementation"]: row for row in every}.values())


def _compiled(gpu: str, config: Config, implementation: str, dtype: str) -> list[Row] | None:
    """Rows of one implementation and number type, from a process of their own; None if the system killed it."""
    request = {"recipe": to_toml(config), "gpu": gpu, "implementation": implementation, "dtype": dtype}
    command = [str(gpu_python()), "-m", "bench.recompute_study.gpu_worker", json.dumps(request)]
    rows: list[Row] = []
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdout is not None
            _COMPILERS.add(process)
            for line in process.stdout:
                rows.append(json.loads(line))
                print(".", end="", file=sys.stderr, flush=True)
        _COMPILERS.discard(process)
        if process.returncode == -signal.SIGKILL:
            return None
        if process.returncode:
            errors.seek(0)
            last = [line for line in errors.read().splitlines() if line.strip()][-1:]
            told = last[0][:300] if last else "no message"
            raise InputError(f"bench.recompute: compiling for {gpu} ended with status {process.returncode}: {told}")
    return rows
