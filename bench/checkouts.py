"""Epochs and batches of another checkout of this project, interleaved with this one's: before and after a change.

`git worktree add ../before COMMIT`, `make -C ../before .venv/.installed`, then `python -m bench.checkouts ../before`.
Both checkouts train the same recipes, each its own, on the same graphs, in processes that take turns; the ratio of each
round is of its quickest epochs. Exit code 1 where a case is slower by more than `--tolerance`.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.comparison.cases import CASES, MINIBATCH_CASES, Case, export, is_real, read_dataset, recipe
from bench.comparison.protocol import Worker
from bench.record import ROOT, commit, store
from jhgnn.data import load
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.runtime.console import Say
from jhgnn.runtime.huge_pages import wanted_environment
from jhgnn.runtime.step_memory import kept_by_environment

WARM_UP, A_TURN = 5, 5
LEAST_ROUNDS, MOST_ROUNDS = 6, 40
LIMIT_S = 600
THREADS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    names = [case.name for case in (*CASES, *MINIBATCH_CASES)]
    parser = argparse.ArgumentParser(prog="python -m bench.checkouts", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="folder of the other checkout, with a .venv of its own")
    parser.add_argument("--cases", nargs="*", choices=names, default=names, metavar="CASE", help="default: all of them")
    parser.add_argument("--seconds", type=float, default=25.0, help="of timed rounds a case (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=0.3, help="of the mini-batches' graph (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=0.05, help="ratio over 1 that counts (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args(arguments)
    python = options.other / ".venv" / "bin" / "python"
    if not python.exists():
        print(f"error: {options.other}: no {python}; run make .venv/.installed there", file=sys.stderr)
        return 2
    roots = {"before": options.other.resolve(), "now": ROOT}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="jhgnn-checkouts-") as folder:
        for case in (*CASES, *MINIBATCH_CASES):
            if case.name not in options.cases:
                continue
            if case in CASES and not is_real(case.dataset):
                print(f"{case.name}: left out, as its data is not here; set JHGNN_DATA_ROOT", file=sys.stderr)
                continue
            found[case.name] = measure(case, roots, Path(folder), options.seconds, options.scale)
            print(f"{case.name}: {json.dumps(found[case.name])}", file=sys.stderr)
            if options.out:
                store(options.out, {"commits": _commits(roots["before"]), "cases": found})
    show(found)
    slower = [name for name, cell in found.items() if cell["ratio"] > 1 + options.tolerance]
    if slower:
        print(f"slower: {', '.join(slower)}", file=sys.stderr)
    return int(bool(slower))


def measure(case: Case, roots: dict[str, Path], folder: Path, seconds: float, scale: float) -> dict[str, Any]:
    """One case's rounds: times, and the median of the rounds' ratios."""
    minibatches = case in MINIBATCH_CASES
    place = folder / case.name
    place.mkdir()
    export(_graph(case, scale), recipe(case), place)
    workers = {name: _start(case, root, place, minibatches) for name, root in roots.items()}
    do, key = ("batches", "batch_s") if minibatches else ("epochs", "epoch_s")

    def turn(worker: Worker, count: int) -> list[float]:
        return [each[key] for each in worker.ask(do, timeout_s=LIMIT_S, count=count)[do]]

    try:
        first_s = {name: turn(worker, 1)[0] for name, worker in workers.items()}
        for worker in workers.values():
            turn(worker, WARM_UP)
        times: dict[str, list[float]] = {name: [] for name in workers}
        ratios: list[float] = []
        start = time.perf_counter()
        while len(ratios) < LEAST_ROUNDS or (time.perf_counter() - start < seconds and len(ratios) < MOST_ROUNDS):
            order = list(workers) if len(ratios) % 2 else list(workers)[::-1]
            own = {name: turn(workers[name], A_TURN) for name in order}
            ratios.append(min(own["now"]) / min(own["before"]))
            for name, found in own.items():
                times[name] += found
    finally:
        for worker in workers.values():
            worker.close()
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "what": do,
        "before_ms": 1e3 * statistics.median(times["before"]),
        "now_ms": 1e3 * statistics.median(times["now"]),
        "ratio": statistics.median(ratios),
        "quartiles": [quarters[0], quarters[2]],
        "first_s": first_s,
        "rounds": len(ratios),
    }


def _graph(case: Case, scale: float) -> HeteroGraph:
    if case in CASES:
        return read_dataset(case.dataset)
    return load("synthetic", case.dataset, scale=scale, progress=False).with_reverse_relations()


def _start(case: Case, root: Path, place: Path, minibatches: bool) -> Worker:
    """A checkout's process that has built the case by its own recipe."""
    environment = {"OMP_NUM_THREADS": str(THREADS)} | wanted_environment()
    environment |= kept_by_environment(dict(os.environ) | environment)
    command: list[str | Path] = [root / ".venv/bin/python", "-m", "bench.comparison.jhgnn_worker"]
    worker = Worker(command, root, environment, place / "worker.log")
    worker.ask(
        "open",
        timeout_s=LIMIT_S,
        framework="jhgnn",
        folder=str(place),
        recipe=str(root / "configs" / f"{case.model}_{case.dataset}.toml"),
        settings={},
        threads=THREADS,
    )
    if minibatches:
        worker.ask("build_minibatches", timeout_s=LIMIT_S, seed=0)
        worker.ask("load_batches", timeout_s=LIMIT_S, variant="in turn")
    else:
        worker.ask("build", timeout_s=LIMIT_S, variant="auto", seed=0)
    return worker


def _commits(other: Path) -> dict[str, str]:
    return {"before": commit(other), "now": commit()}


def show(found: dict[str, Any]) -> None:
    """Prints the table."""
    rows = [
        [
            name,
            f"{cell['before_ms']:.1f}",
            f"{cell['now_ms']:.1f}",
            f"{cell['ratio']:.3f}",
            " - ".join(f"{each:.2f}" for each in cell["quartiles"]),
            f"{cell['first_s']['before']:.1f}, {cell['first_s']['now']:.1f}",
        ]
        for name, cell in found.items()
    ]
    columns = ["case", "before, ms", "now, ms", "ratio", "quartiles", "first, s"]
    Say().table("an epoch, or a batch of mag's, of two checkouts in turn", columns, rows)


if __name__ == "__main__":
    sys.exit(main())
