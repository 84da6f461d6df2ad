"""What several GPUs should gain, modelled from programs compiled for 1, 2, 4 and 8 of them: findings 16, 19, 20 and 22.

`python -m bench.several_gpus`: compiles the updates of the mini-batch recipes on the synthetic ogbn-mag for A100 in
the environment of `bench.gpu` (made if it is missing, 1.2 GB), a minute a program; `--resume` keeps what was compiled.
Nothing is run on a GPU. Every figure in the result is modelled; the time of sampling on the host in it was measured on
CPUs (`host_sampling_s`).

The batch is divided over n devices, as in the paper. Of one step, with the constants below:

    device  = max(operations / peak, bytes / memory rate) + launches * LAUNCH_S      (per device, a lower bound)
    load    = bytes of the batch / PCIe rate, whose transfers meet others' on the same host
    sync    = what of the collectives no kernel hides: ring all-reduce 2 (n - 1) / n * bytes / NVLink rate, all-gather
              (n - 1) / n * bytes / NVLink rate, and (n - 1) HOP_S, twice for an all-reduce
    step    = sample + load + device + sync      (in turn, as in the paper's stack; hosts sample shares in parallel)
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.cases import Case, all_cases
from bench.gpu.compile_lane import compiled
from bench.gpu.devices import GPUS
from bench.gpu.environment import create_gpu, missing
from bench.record import RESULTS, commit, store
from jhgnn.profiling.costs import cost
from jhgnn.profiling.hlo import Computation, Module, parse

OUTPUT = RESULTS / "several-gpus.json"
PAPER, CONTENTION = RESULTS / "paper.json", RESULTS / "contention.json"
GPU = "a100"
DEVICES = (1, 2, 4, 8)
RECIPES = ("rgcn_mag", "rgat_mag", "han_mag")

LAUNCH_S = 2e-6
"""From one kernel to the next in a stream that is full."""
PCIE_BYTES_PER_S = 25e9
"""Of 16 lanes of generation 4, as copies reach it."""
NVLINK_BYTES_PER_S = 300e9
"""Of an A100 in one direction: twelve links of 25 GB/s."""
HOP_S = 5e-6
"""Latency of one step of a ring."""

Row = dict[str, Any]


def peak(gpu: str = GPU) -> tuple[float, float]:
    """(float32 operations, bytes of memory) per second."""
    device = GPUS[gpu]
    return 2e9 * device.cores * device.fpus_per_core * device.clock_ghz, device.bytes_per_s


def work(module: Module) -> tuple[float, float]:
    """(operations, bytes) of one run of a program on one device; loops count as often as XLA knows, or once."""
    return _work(module, module.entry)


def _work(module: Module, computation: Computation) -> tuple[float, float]:
    import re

    flops = moved = 0.0
    for instruction in computation.instructions.values():
        if instruction.opcode in ("while", "call", "conditional"):
            known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', instruction.attributes)
            times = int(known.group(1)) if known and instruction.opcode == "while" else 1
            for name in instruction.called:
                inside = _work(module, module.computations[name])
                flops, moved = flops + times * inside[0], moved + times * inside[1]
        elif not instruction.opcode.endswith("-done"):
            own = cost(module, instruction)
            flops, moved = flops + own.flops, moved + own.num_bytes
    return flops, moved


def step(row: Mapping[str, Any], sample_s: float) -> Row:
    """The parts of a modelled step, seconds, from a compiled program's figures.

    Args:
        row: `devices`, `flops`, `moved_bytes`, `launches`, `batch_bytes`, `collectives`, of one device.
        sample_s: of the host, for a device's share of the batch; 0 where the device samples.
    """
    devices = row["devices"]
    operations_per_s, bytes_per_s = peak()
    device_s = max(row["flops"] / operations_per_s, row["moved_bytes"] / bytes_per_s) + row["launches"] * LAUNCH_S
    alone_s = row["batch_bytes"] / PCIE_BYTES_PER_S
    sync_s, hidden_s, moved = 0.0, 0.0, 0.0
    for each in row["collectives"]:
        steps = (devices - 1) * (2 if each["kind"] == "all-reduce" else 1)
        sent = steps / devices * each["bytes"]
        seconds = sent / NVLINK_BYTES_PER_S + steps * HOP_S
        beside = min(seconds, device_s * each["kernels_meanwhile"] / max(1, row["kernels"]))
        sync_s, hidden_s, moved = sync_s + seconds - beside, hidden_s + beside, moved + sent
    # A transfer meets each other device's with the share of the step for which a device transfers; those that meet
    # share the host's memory and root complex. A few rounds settle it.
    load_s = alone_s
    for _ in range(50):
        busy = load_s / (sample_s + load_s + device_s + sync_s)
        load_s = alone_s * (1 + (devices - 1) * busy)
    return {
        "sample_s": sample_s,
        "load_s": load_s,
        "device_s": device_s,
        "sync_s": sync_s,
        "hidden_s": hidden_s,
        "step_s": sample_s + load_s + device_s + sync_s,
        "pcie_bytes_per_s": row["batch_bytes"] / load_s if load_s else 0.0,
        "nvlink_bytes_per_s": moved / (sync_s + hidden_s) if moved else 0.0,
    }


def host_sampling_s(recipe: str) -> dict[int, float]:
    """Devices -> seconds of the process that samples a device's share of a batch, from what was measured on CPUs.

    The whole batch is that of `python -m bench.paper`, with the same recipe; how much less or more a share takes when
    as many processes sample theirs is that of `python -m bench.contention`.
    """
    rows = json.loads(PAPER.read_text(encoding="utf-8"))["rows"]
    name = recipe.replace("_", " ")
    sampled = [row for row in rows if row["group"] == "sampled" and row["name"] == name]
    (whole,) = (row["host"]["SAMPLE"] for row in sampled if row["aggregation"] == "fused")
    shares = json.loads(CONTENTION.read_text(encoding="utf-8"))["rows"]
    return {row["shares"]: whole * row["slowdown_processes"] for row in shares}


def modelled(rows: Sequence[Row]) -> Iterator[Row]:
    """Steps of every recipe on every number of devices, sampled on the host and on the device."""
    for row in rows:
        host = 0.0 if row["side"] == "device" else host_sampling_s(row["recipe"])[row["devices"]]
        shown = {key: row[key] for key in ("recipe", "side", "devices")}
        yield {"kind": "modelled"} | shown | step(row, host)


def compiled_rows(cases: Sequence[Case], devices: Sequence[int]) -> Iterator[Row]:
    """One row an update: what the lane tells of it, and its operations and bytes from the saved program."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            for row in compiled(case, [GPU], devices, Path(folder)):
                if row.get("gpu") != GPU or row["program"] != "update":
                    continue
                name = f"{case.name.replace(' ', '-')}-update-{GPU}-{row['devices']}.hlo.txt"
                flops, moved = work(parse((Path(folder) / name).read_text(encoding="utf-8")))
                yield row | {
                    "side": case.variant.split()[0],
                    "flops": flops,
                    "moved_bytes": moved,
                    # What is not state, which stays; where the device samples, the graph stays too, and seeds come.
                    "batch_bytes": 0
                    if case.variant.startswith("device")
                    else row["argument_bytes"] - row["alias_bytes"],
                }


def main() -> int:
    """The exit code: 3 where nothing can be compiled here."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.several_gpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--devices", nargs="*", type=int, default=list(DEVICES))
    parser.add_argument("--sides", nargs="*", choices=("host", "device"), default=["host", "device"])
    parser.add_argument("--resume", action="store_true", help="keep the programs of other recipes, sides and devices")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE")
    options = parser.parse_args()
    problem = create_gpu() or missing()
    if problem:
        print(f"skipped: {problem}", file=sys.stderr)
        return 3
    rows: list[Row] = []
    if options.resume and options.output.exists():
        rows = json.loads(options.output.read_text(encoding="utf-8"))["programs"]
    for case in all_cases():
        if case.recipe not in options.recipes or case.variant.partition(" ")[0] not in options.sides:
            continue
        for devices in options.devices:
            key = (case.recipe, case.variant, devices)
            if options.resume and any((row["recipe"], row["variant"], row["devices"]) == key for row in rows):
                continue
            for row in compiled_rows([case], [devices]):
                kept = [other for other in rows if (other["recipe"], other["variant"], other["devices"]) != key]
                rows = [*kept, row | {"commit": commit()}]
                print(
                    f"{row['case']} on {devices}: {row['flops']:.3g} operations, {row['moved_bytes']:.3g} bytes",
                    flush=True,
                )
                _store(options.output, rows)
    _store(options.output, rows)
    return 0


def _store(path: Path, rows: list[Row]) -> None:
    constants = {
        "launch_s": LAUNCH_S,
        "pcie_bytes_per_s": PCIE_BYTES_PER_S,
        "nvlink_bytes_per_s": NVLINK_BYTES_PER_S,
        "hop_s": HOP_S,
        "operations_per_s": peak()[0],
        "memory_bytes_per_s": peak()[1],
    }
    ordered = sorted(rows, key=lambda row: (RECIPES.index(row["recipe"]), row["side"], row["devices"]))
    dropped = ("edge_wide_arrays", "float_scatters")
    store(
        path,
        {
            "study": "several GPUs",
            "label": "compiled without a device; every time is modelled; that of host sampling is from times on CPUs",
            "commit": commit(),
            "gpu": GPUS[GPU].name,
            "load_average": round(os.getloadavg()[0], 2),
            "constants": constants,
            "programs": [{key: value for key, value in row.items() if key not in dropped} for row in ordered],
            "rows": list(modelled(ordered)),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
