"""One program for all processes against a program for each, in relations first: compile time, padding, step time.

`python -m bench.branch_programs`: starts processes that train together on this machine over loopback, one shard of the
relations each, and compiles the update of training in each of them both ways, in turns. Steps then take turns as well,
a round of each, on the same batches, which lie on the devices before anything is timed. Seconds are medians, of a
process's compilations and of its rounds. The processes share this machine's cores, so that only one way can be compared
with the other. Bytes are exact: of a device's buffers for a batch, of what its backward pass needs of its forward pass,
and XLA's figure for temporaries, which holds the latter. `--page` writes the table into `docs/distributed.md`.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from bench.loopback import free_address
from bench.pages import write_between
from bench.record import RESULTS, ROOT, commit, store
from jhgnn.config import DistributedConfig
from jhgnn.config.recipe import load_recipe
from jhgnn.runtime import processes
from jhgnn.runtime.console import Say
from jhgnn.sampling.epoch import Cursor
from jhgnn.training import raf_step
from jhgnn.training.branch_gradients import BranchGradients
from jhgnn.training.mesh import local
from jhgnn.training.packing import Packing, Sizes, largest
from jhgnn.training.problem import pose, read_graph
from jhgnn.training.programs import Compiled, compile_lowered
from jhgnn.training.raf import RelationsFirst, RelPrograms

Way = Literal["one", "own"]
WAYS: tuple[Way, ...] = ("one", "own")
COMPILATIONS = 2
BATCHES = 4


class _Recorded(BranchGradients):
    """Remembers what the branches that were traced last hand to their backward passes."""

    packings: tuple[Packing, ...] = ()

    def forward(self, shard: jax.Array, arguments: Any) -> tuple[Any, Any]:
        found = super().forward(shard, arguments)
        _Recorded.packings = tuple(each.packing for each in self._pulled)
        return found


def worker(options: argparse.Namespace) -> None:
    """One of the processes; writes what it found as JSON."""
    address, number = options.worker
    count = options.processes[0]
    processes.join(DistributedConfig(coordinator=address, num_processes=count, process_id=int(number)))
    config = load_recipe(options.config)
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, format="synthetic", scale=options.scale),
        sampling=dataclasses.replace(config.sampling, prefetch_threads=0),
    )
    graph = read_graph(config)
    executions: dict[Way, RelationsFirst] = {}
    for way in WAYS:
        distributed = dataclasses.replace(
            config.distributed, strategy="raf", relation_shards=count, devices=1, programs=way
        )
        executions[way] = RelationsFirst(pose(graph, dataclasses.replace(config, distributed=distributed)))
    ((_, shard),) = executions["one"].mesh.local_devices
    compiled, compile_s, kept = _compiled(executions, shard)
    step_s = _timed(executions, compiled, options)
    entries = [
        {
            "processes": count,
            "process": int(number),
            "relations": executions[way].shards[shard].names,
            "programs": way,
            "compile_s": statistics.median(compile_s[way]),
            "buffer_bytes": _bytes(executions[way].rel_source.sizes(0)),
            "kept_bytes": kept[way],
            "temporary_bytes": compiled[way].peak_temp_bytes,
            "step_s": statistics.median(step_s[way]),
            "rounds_s": step_s[way],
        }
        for way in WAYS
    ]
    options.out.write_text(json.dumps(entries), encoding="utf-8")
    processes.meet("done")


def _compiled(
    executions: Mapping[Way, RelationsFirst], shard: int
) -> tuple[dict[Way, Compiled], dict[Way, list[float]], dict[Way, int]]:
    """The update for most batches, compiled by all processes at once; seconds; bytes for the backward pass."""
    raf_step.BranchGradients = _Recorded  # type: ignore[misc]
    seconds: dict[Way, list[float]] = {way: [] for way in WAYS}
    compiled: dict[Way, Compiled] = {}
    kept: dict[Way, int] = {}
    for turn in range(COMPILATIONS):
        for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
            processes.meet(f"compile {turn} {way}")
            compiled[way] = compile_lowered(executions[way].lower_update)
            seconds[way].append(compiled[way].compile_s)
            if way == "one":  # which has all branches
                packings = _Recorded.packings
                kept = {"one": _bytes(largest(packings)), "own": _bytes(packings[shard].sizes)}
    return compiled, seconds, kept


def _timed(
    executions: Mapping[Way, RelationsFirst], compiled: Mapping[Way, Compiled], options: argparse.Namespace
) -> dict[Way, list[float]]:
    """Seconds of a step in each round; the first one, which warms up, is left out."""
    seconds: dict[Way, list[float]] = {way: [] for way in WAYS}
    programs = {way: RelPrograms(executions[way], [compiled[way]], []) for way in WAYS}
    states = {way: each.initial_state(1) for way, each in programs.items()}
    batches = {way: _batches(each) for way, each in programs.items()}
    for number in range(options.rounds + 1):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            processes.meet(f"round {number} {way}")
            start = time.perf_counter()
            for step in range(options.steps):
                states[way], report = programs[way].update(states[way], batches[way][step % BATCHES])
            if bool(local(report.overflowed)):
                raise RuntimeError("a batch did not fit, so that its step did nothing")
            if number:
                seconds[way].append((time.perf_counter() - start) / options.steps)
    same = jax.tree.map(lambda a, b: np.array_equal(local(a), local(b)), states["one"].params, states["own"].params)
    if not all(jax.tree.leaves(same)):
        print("parameters differ between the two ways", file=sys.stderr)
    return seconds


def _batches(programs: RelPrograms) -> list[Any]:
    found = programs.feed(0).iterate(Cursor())
    return [next(found) for _ in range(BATCHES)]


def _bytes(sizes: Sizes) -> int:
    return sum(count * np.dtype(name).itemsize for name, count in sizes.items())


def run(options: argparse.Namespace, count: int) -> list[dict[str, Any]]:
    """What the processes of one number found."""
    address, entries = free_address(), []
    with tempfile.TemporaryDirectory(prefix="jhgnn-programs-") as folder:
        outs = [Path(folder) / f"{number}.json" for number in range(count)]
        common = [f"--config={options.config}", f"--scale={options.scale}", f"--processes={count}"]
        common += [f"--rounds={options.rounds}", f"--steps={options.steps}"]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.branch_programs", *common, f"--out={out}", "--worker", address, str(own)],
                cwd=ROOT,
                env=dict(os.environ) | {"JAX_PLATFORMS": "cpu"},
            )
            for own, out in enumerate(outs)
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            raise RuntimeError(f"{count} processes ended with {codes}")
        for out in outs:
            entries += json.loads(out.read_text(encoding="utf-8"))
    return entries


HEADINGS = [
    *("processes", "programs", "compilation, s", "buffers of a batch, MiB", "for the backward pass, MiB"),
    *("temporaries, MiB", "step, ms"),
]


def table(entries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each number of processes and way; what differs by process stands in their order."""
    rows = []
    for count in dict.fromkeys(entry["processes"] for entry in entries):
        for way in WAYS:
            own = [entry for entry in entries if (entry["processes"], entry["programs"]) == (count, way)]
            sizes = [
                " / ".join(f"{entry[key] / 2**20:.1f}" for entry in own)
                for key in ("buffer_bytes", "kept_bytes", "temporary_bytes")
            ]
            compile_s = " / ".join(f"{entry['compile_s']:.1f}" for entry in own)
            step_s = max(entry["step_s"] for entry in own)
            rows.append([str(count), way, compile_s, *sizes, f"{1e3 * step_s:.0f}"])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.branch_programs", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/rgcn_mag.toml", help="recipe with mini-batches")
    parser.add_argument("--scale", type=float, default=0.05, help="of the recipe's synthetic graph")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 3], help="numbers of them, a shard each")
    parser.add_argument("--rounds", type=int, default=6, help="of each way")
    parser.add_argument("--steps", type=int, default=8, help="of a round")
    parser.add_argument("--out", type=Path, default=RESULTS / "branch-programs.json")
    parser.add_argument("--page", action="store_true", help="write the table into docs/distributed.md")
    parser.add_argument("--worker", nargs=2, metavar=("ADDRESS", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        worker(options)
        return 0
    entries = [entry for count in options.processes for entry in run(options, count)]
    command = f"python -m bench.branch_programs --config {options.config} --scale {options.scale}"
    cores = len(os.sched_getaffinity(0))
    store(options.out, {"command": command, "commit": commit(), "cores": cores, "entries": entries})
    rows = table(entries)
    Say().table("relations first, a step", HEADINGS, rows)
    if options.page:
        lines = [f"| {' | '.join(each)} |" for each in (HEADINGS, ["---"] * len(HEADINGS), *rows)]
        about = f"By `{command}` (`bench/results/branch-programs.json`), on {cores} cores."
        page = ROOT / "docs" / "distributed.md"
        write_between(page, "<!-- branch-programs -->", "<!-- /branch-programs -->", "\n".join([*lines, "", about]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
