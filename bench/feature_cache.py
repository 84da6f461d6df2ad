"""What a cache of feature rows gains where features are read from a file that does not stay in memory.

`python -m bench.feature_cache`: saves the synthetic graph of ogbn-mag at a scale, trains R-GCN on the saved files by
`configs/rgcn_mag.toml` with each budget of `sampling.cache` in turn, and reports seconds an epoch, seconds of gathering
and the rows that the cache had. Before every step the system is told to forget the file's pages, as it would where the
file is larger than the memory it has for files; the figures say what reading costs on this machine's disk then. Steps
of all budgets are interleaved, each budget with its own training from the same state, and results are equal to the bit.
"""

import argparse
import mmap
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import commit, store
from bench.stepper import Step, Stepper
from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override
from jhgnn.data import load, save_graph
from jhgnn.runtime.console import Say
from jhgnn.stores.cached import CachedRows
from jhgnn.stores.file_rows import mapping_of
from jhgnn.training.mesh import local
from jhgnn.training.prepare import prepare
from jhgnn.training.sampled import Sampled

SHARES = (0.0, 0.05, 0.1, 0.2, 0.4)


Result = dict[str, Any]


def measure(recipe: str, scale: float, batch_size: int, steps: int, folder: Path) -> Result:
    """Interleaved steps of every budget."""
    config = load_recipe(recipe)
    if batch_size:
        config = override(config, {"sampling": {"batch_size": batch_size}}, where="--batch-size")
    graph = load("synthetic", config.data.preset, scale=scale, seed=config.data.seed)
    saved = save_graph(graph, folder / "graph")
    os.sync()  # the system does not forget pages that are not on the disk yet
    feature_bytes = sum(matrix.nbytes for matrix in graph.features.values() if isinstance(matrix, np.ndarray))
    del graph
    budgets = [int(share * feature_bytes) for share in SHARES]
    runs = [_started(config, saved, budget) for budget in budgets]
    count = steps or runs[0][0].steps_per_epoch
    steppers = [stepper for _, stepper in runs]
    table: list[Result] = []
    times: list[list[Step]] = [[] for _ in runs]
    for number in range(count + 1):  # the first step of each warms up
        order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
        for index in order:
            _forget([execution for execution, _ in runs])
            step = steppers[index].step()
            if number:
                times[index].append(step)
    losses = {float(local(own[-1].report.loss)) for own in times}
    if len(losses) != 1:
        raise RuntimeError(f"budgets ended with different losses: {sorted(losses)}")
    for share, budget, (execution, stepper), own in zip(SHARES, budgets, runs, times, strict=True):
        stepper.close()
        cache = execution.features
        facts = execution.facts().get("feature_cache", {"bytes": 0, "hit_rate": {}})
        assert isinstance(cache, CachedRows) == bool(budget)
        table.append(
            {
                "share": share,
                "cached_bytes": facts["bytes"],
                "hit_rate": facts["hit_rate"],
                "epoch_s": sum(step.seconds for step in own),
                "wait_ms": 1e3 * statistics.median(step.wait_s for step in own),
                "update_ms": 1e3 * statistics.median(step.update_s for step in own),
            }
        )
    return {
        "recipe": recipe,
        "scale": scale,
        "batch_size": config.sampling.batch_size,
        "steps": count,
        "feature_bytes": feature_bytes,
        "commit": commit(),
        "machine": platform.processor() or platform.machine(),
        "rows": table,
    }


def _started(config: Config, saved: Path, budget: int) -> tuple[Sampled, Stepper]:
    data = {"format": "jhgnn", "path": str(saved)}
    sampling = {"features": "host", "cache": budget, "prefetch_threads": 0}
    execution = prepare(override(config, {"data": data, "sampling": sampling}, where="bench.feature_cache"))
    assert isinstance(execution, Sampled)
    return execution, Stepper.begin(execution.compile())


def _forget(executions: Sequence[Sampled]) -> None:
    """Has the system drop the pages of the features' files: it keeps those that any of the executions has mapped."""
    names = set()
    for execution in executions:
        for table in (*execution.features.tables.values(), *execution.sampling.features.tables.values()):
            assert isinstance(table, np.ndarray)
            mapping: Any = mapping_of(table)
            mapping._mmap.madvise(mmap.MADV_DONTNEED)
            names.add(mapping.filename)
    for name in names:
        file = os.open(name, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def show(result: Result) -> None:
    """Prints the table."""
    none = result["rows"][0]["epoch_s"]
    rows = [
        [
            f"{100 * row['share']:g} %",
            f"{row['cached_bytes'] / 2**20:.1f}",
            ", ".join(f"{name} {rate:.2f}" for name, rate in row["hit_rate"].items()) or "-",
            f"{row['wait_ms']:.0f}",
            f"{row['update_ms']:.0f}",
            f"{row['epoch_s']:.1f}",
            f"{none / row['epoch_s']:.2f}",
        ]
        for row in result["rows"]
    ]
    size = f"{result['feature_bytes'] / 2**20:.0f} MiB"
    title = f"{result['steps']} steps from files of {size} that memory does not keep"
    columns = ["cache", "MiB", "rows it had", "wait ms", "update ms", "all steps s", "times as fast"]
    Say().table(title, columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.feature_cache", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--config", default="configs/rgcn_mag.toml", help="recipe with mini-batches (default: %(default)s)"
    )
    parser.add_argument("--scale", type=float, default=0.2, help="of the synthetic graph (default: %(default)s)")
    parser.add_argument(
        "--batch-size", type=int, default=0, help="targets a batch; 0: the recipe's (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=0, help="of the epoch; 0: all (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="jhgnn-feature-cache-") as folder:
        result = measure(options.config, options.scale, options.batch_size, options.steps, Path(folder))
    show(result)
    if options.out:
        store(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
