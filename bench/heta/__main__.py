"""Relations first, meta-partitions and caches, against training over `data` on cut graphs.

    python -m bench.heta                         all of it, with R-GCN on a fifth of the synthetic mag
    python -m bench.heta partitioning --scale 1

`traffic`: draws the first epoch of a recipe with the samplers of training, each shard's branches and each part's own
targets, and counts the distinct rows that each must read. Bytes are counted from the draws, over all devices; none is
timed. Where the planner's own plan cuts a branch deeper, it stands beside that of whole branches. Beside what the draws
need of frontiers and learnable rows stands what the compiled update sends: requests, rows, sums and gradients, padded
to the capacities learnt before training. Over `data` each device trains the targets that its part owns, and fetches
what other parts own: fixed rows once, learnable ones with their gradients back. The same with a cache on each device,
which the knapsack fills; and seconds of an epoch in a model, which say so.

`policies`: what each cache policy leaves of the cost of misses and which rows it has, over the budget, with fixed and
learnable types apart. `partitioning`: time and memory of the plan, METIS and other methods. `accuracy`: test scores of
one device, of two over `data`, and of two with relations first.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bench.heta import accuracy, cluster, partitioning, policies, traffic
from bench.heta.ways import distributed
from bench.pages import write_between
from bench.record import RESULTS, ROOT, commit, store
from jhgnn.config.recipe import load_recipe
from jhgnn.distributed.meta.work import WorkCosts, measured_costs, shape_of
from jhgnn.errors import InputError
from jhgnn.runtime.console import Say
from jhgnn.training.problem import pose, read_graph
from jhgnn.training.sampled import Sampled

PARTS = ("partitioning", "traffic", "policies", "accuracy")
STORED, PAGE = RESULTS / "heta.json", ROOT / "docs" / "distributed.md"
TABLES = {
    "traffic": {"traffic": traffic.table, "caches": traffic.cached_table, "cluster": cluster.table},
    "policies": {"policies": policies.table},
    "partitioning": {"partitioning": partitioning.table},
    "accuracy": {"accuracy": accuracy.table},
}
"""Part -> mark on the page -> what makes its table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; bad input is one line on stderr and exit code 2."""
    try:
        _run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.heta", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="what to measure; default all")
    parser.add_argument("--config", default="configs/rgcn_mag.toml", help="recipe with mini-batches")
    parser.add_argument("--scale", type=float, default=0.2, help="of the recipe's synthetic graph (default 0.2)")
    parser.add_argument("--steps", type=int, help="of the epoch that are counted; default all")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 3, 4], help="(default 2 3 4)")
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of the model of exchange (default 10)")
    parser.add_argument(
        "--cache-share", type=float, default=0.2, help="of all rows and moments that a device's cache holds"
    )
    parser.add_argument("--costs", choices=("stated", "measured"), default="stated", help="of a policy's misses")
    parser.add_argument("--rounds", type=int, default=3, help="of timing the partitioning (default 3)")
    parser.add_argument("--seeds", type=int, default=3, help="of accuracy (default 3)")
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--page", action="store_true", help="write the tables into docs/distributed.md")
    options = parser.parse_args(arguments)
    stored: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(options.shards))
    for part in options.parts or PARTS:
        stored[part] = {"command": _command(part, options), "commit": commit(), "cores": os.cpu_count()}
        stored[part] |= _measured(part, options)
        store(options.out, {name: stored[name] for name in PARTS if name in stored})
        for mark, table in TABLES[part].items():
            Say().table(mark, *table(stored[part]))
    if options.page:
        write_page(stored)


def write_page(stored: dict[str, Any], page: Path = PAGE) -> None:
    """The tables of the parts that are stored, each between its marks."""
    for part in (name for name in PARTS if name in stored):
        for mark, table in TABLES[part].items():
            headings, rows = table(stored[part])
            lines = [f"| {' | '.join(each)} |" for each in (headings, ["---"] * len(headings), *rows)]
            about = f"By `{stored[part]['command']}` (`bench/results/{STORED.name}`, commit {stored[part]['commit']})."
            body = "\n".join([*lines, "", about])
            write_between(page, f"<!-- heta: {mark} -->", f"<!-- /heta: {mark} -->", body)


OPTIONS = {
    "traffic": ("config", "scale", "steps", "shards", "network_gbit", "cache_share"),
    "policies": ("config", "scale", "steps", "costs"),
    "partitioning": ("config", "scale", "shards", "rounds"),
    "accuracy": ("seeds",),
}
"""What each part reads."""


def _command(part: str, options: argparse.Namespace) -> str:
    own = {name: getattr(options, name) for name in OPTIONS[part]}
    words = [
        f"--{name.replace('_', '-')} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in own.items()
        if value is not None
    ]
    return " ".join([f"python -m bench.heta {part}", *words])


def _measured(part: str, options: argparse.Namespace) -> dict[str, Any]:
    if part == "accuracy":
        return accuracy.compare(options.seeds)
    if part == "partitioning":
        return partitioning.measure(Path(options.config), options.scale, max(options.shards), options.rounds)
    config = load_recipe(options.config)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, format="synthetic", scale=options.scale))
    graph = read_graph(config)
    execution = Sampled(pose(graph, distributed(config, devices=1)))
    if part == "policies":
        costs = WorkCosts()
        if options.costs == "measured":
            costs = measured_costs(shape_of(execution.problem.graph, config.model.hidden), lambda turn: 1)
        return policies.compare(execution, costs, options.steps)
    return traffic.compare(
        graph,
        execution,
        shards=options.shards,
        steps=options.steps,
        cache_share=options.cache_share,
        network_gbit=options.network_gbit,
        say=Say(),
    )


if __name__ == "__main__":
    sys.exit(main())
