"""What each strategy of training on parts moves between places, counted exactly, by partitioner and number of parts.

`python -m bench.distributed`: draws the first batches of a recipe's first epoch as training draws them (sampling is
stateless, so no devices are needed), cuts them by each strategy, and counts the rows that a place needs from others,
the bytes by kind, the requests, the spill, and the balance. The seconds of a step are of a model,
`seconds = (largest bytes into a place + 2 (N - 1) / N parameters + moved models) / bandwidth + rendezvous x latency`.
Bytes are of rows, without the padding of the buffers that programs exchange. Measured is what each place's drawing
takes, one place after the other, with nothing beside it; and with `--loopback`, after the counts, a step of processes
that train together here, which share this machine's cores. `--page` writes the tables into `docs/distributed.md`;
`--out` keeps all of it as JSON, with a plot beside it.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.loopback import HEADER as LOOPBACK
from bench.loopback import steps_of
from bench.loopback import table as loopback_table
from bench.pages import write_between
from bench.record import RESULTS, ROOT, commit, store
from jhgnn.config.recipe import load_recipe, override
from jhgnn.distributed.cutting import assign
from jhgnn.distributed.placement import Placement
from jhgnn.distributed.shares import plan_shares
from jhgnn.graph.default_metapaths import default_metapaths
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.runtime.console import Say
from jhgnn.sampling.capacities import fixed
from jhgnn.sampling.host import HostSampler
from jhgnn.training.execution import num_bytes
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import read_problem
from jhgnn.training.sampled import Sampled

STRATEGIES = {"data": "data", "owner": "owner", "leapgnn": "leapgnn", "leapgnn, merged": "leapgnn"}
"""What is counted -> `distributed.strategy`; merged, the ring takes half as many time steps as there are parts."""
NETWORKS = {"10 Gb/s": 1.25e9, "100 Gb/s": 12.5e9, "NVLink": 450e9}
"""Bytes a second into one place."""
LATENCY_S = 50e-6
"""Of one rendezvous of all places."""
PAGE_PARTS = 4
BEGIN, END = "<!-- bench.distributed: begin -->", "<!-- bench.distributed: end -->"


def execution_for(preset: str, scale: float, batch_size: int) -> Sampled:
    """R-GCN of the recipe on a synthetic graph."""
    config = load_recipe(ROOT / "configs" / ("rgcn_mag.toml" if preset == "mag" else f"rgcn_{preset}.toml"))
    changes: dict[str, Any] = {
        "data": {"format": "synthetic", "path": "", "preset": preset, "scale": scale},
        "sampling": {"batch_size": batch_size, "fan_out": "25,20"},
        "training": {"rows": "auto"},
        "distributed": {"devices": 1},
    }
    changes["model"] = {"layers": 2}
    found = execution_of(read_problem(override(config, changes, where="bench.distributed"), progress=False))
    assert isinstance(found, Sampled)
    return found


class Counter:
    """Counts of one strategy on one partition, step by step."""

    def __init__(self, execution: Sampled, sampler: HostSampler, placement: Placement, named: str) -> None:
        strategy = STRATEGIES[named]
        self.execution, self.sampler, self.placement = execution, sampler, placement
        batches = execution.batches(0)
        (target,) = execution.task.targets
        self.order, self.batches = batches.order(0), batches
        places = placement.places(target, np.arange(len(placement.homes[target]), dtype=np.int32))
        num_parts, size = placement.num_places, batches.batch_size
        shown = (batches.batch(self.order, step) for step in range(batches.steps_per_epoch))
        self.shares = plan_shares(
            strategy,  # type: ignore[arg-type]
            num_parts,
            size,
            shown,
            None if strategy == "data" else places,
            time_steps=num_parts // 2 if named.endswith("merged") else 0,
        )
        params = execution.abstract_params
        self.dense_bytes = num_bytes(with_tables(params, {}))
        self.learnt = {name: 4 * table.shape[1] for name, table in tables_of(params).items()}
        self.fixed = {
            name: num_bytes(execution.sampling.features.abstract(name, np.zeros(1, np.int32)))
            for name in execution.sampling.features.node_types
        }

    def step(self, number: int) -> dict[str, float]:
        """Counts of one batch, over all places."""
        num_places = self.placement.num_places
        found = dict.fromkeys(
            ("remote_rows", "separate_rows", "requests", "separate_requests", "feature_bytes", "row_bytes"), 0.0
        )
        into, drawn, drawing_s = np.zeros(num_places), np.zeros(num_places), np.zeros(num_places)
        ids = self.batches.batch(self.order, number)
        for place, parts in enumerate(self.shares.cut(ids)):
            met: list[dict[str, np.ndarray]] = []
            for own in parts:
                nodes, seconds = self._nodes(own, number)
                drawing_s[place] += seconds
                drawn[place] += sum(len(each) for each in nodes.values())
                met.append(nodes)
            for nodes in met:
                asked = self._asked(nodes, place)
                found["separate_rows"] += sum(int(counts.sum()) for counts in asked.values())
                found["separate_requests"] += _messages(asked, num_places)
            together = {
                name: np.unique(np.concatenate([nodes[name] for nodes in met if name in nodes]))
                for name in {name for nodes in met for name in nodes}
            }
            asked = self._asked(together, place)
            found["requests"] += _messages(asked, num_places)
            for name, counts in asked.items():
                rows = int(counts.sum())
                found["remote_rows"] += rows
                found["feature_bytes"] += rows * self.fixed.get(name, 0)
                found["row_bytes"] += rows * self.learnt.get(name, 0)
                into[place] += rows * (self.fixed.get(name, 0) + self.learnt.get(name, 0))
        found["request_bytes"] = 4 * found["remote_rows"]
        found["gradient_bytes"] = found["row_bytes"]
        moves = self.shares.num_parts - 1 if self.shares.strategy == "leapgnn" else 0
        found["model_bytes"] = 2 * moves * num_places * self.dense_bytes
        found["all_reduce_bytes"] = 2 * (num_places - 1) * self.dense_bytes
        found["spilled"] = self.shares.spilled(ids)
        found["target_balance"] = _balance((self.shares.cut(ids) >= 0).sum(axis=(1, 2)))
        found["work_balance"] = _balance(drawn)
        found["drawing_s slowest"], found["drawing_s all"] = float(drawing_s.max()), float(drawing_s.sum())
        reduced = 2 * (num_places - 1) / num_places * self.dense_bytes
        most = 2 * into.max() if found["row_bytes"] else into.max()  # gradients of learnable rows go the same way back
        for network, bandwidth in NETWORKS.items():
            found[f"model_s {network}"] = (most + reduced + 2 * moves * self.dense_bytes) / bandwidth + (
                4 + moves
            ) * LATENCY_S
        return found

    def _nodes(self, own: np.ndarray, number: int) -> tuple[dict[str, np.ndarray], float]:
        """Distinct vertices of one part's blocks, by type, and the seconds of drawing them."""
        seeds = self.execution.seeds_of(own, 0, number)
        plan = self.sampler.plan
        started = time.perf_counter()
        added = self.sampler.count(seeds, 0, number)
        seconds = time.perf_counter() - started
        added[0] = [len(seeds.get(name, ())) for name in plan.node_types]
        bound = plan.bound_capacities({name: len(ids) for name, ids in seeds.items()})
        slots = [
            FrozenCounts.of({name: max(1, int(row[plan.node_types.index(name)])) for name, _ in most.items})
            for row, most in zip(np.cumsum(added, axis=0), bound, strict=True)
        ]
        blocks, _ = self.sampler.sample(seeds, 0, number, fixed(tuple(slots)))
        return {name: ids[ids >= 0] for name, ids in blocks.nodes.items()}, seconds

    def _asked(self, nodes: dict[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
        """Rows of each type that a place asks each other one for."""
        found = {}
        for name, ids in nodes.items():
            counts = np.bincount(self.placement.places(name, ids), minlength=self.placement.num_places)
            counts[place] = 0
            found[name] = counts
        return found


def _messages(asked: dict[str, np.ndarray], num_places: int) -> int:
    """Other places that are asked for anything."""
    return int((sum(asked.values(), np.zeros(num_places)) > 0).sum())


def _balance(counts: np.ndarray) -> float:
    return float(counts.max() / max(counts.mean(), 1e-9))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.distributed", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["acm", "dblp", "mag"])
    parser.add_argument("--methods", nargs="+", default=["random", "metis", "metapath"])
    parser.add_argument("--parts", nargs="+", type=int, default=[2, 4, 8, 16])
    parser.add_argument("--scale", type=float, default=1.0, help="of mag")
    parser.add_argument("--steps", type=int, default=4, help="batches that are counted")
    parser.add_argument("--out", type=Path, default=RESULTS / "distributed.json")
    parser.add_argument("--loopback", nargs="*", type=int, default=[], help="numbers of processes to time steps of")
    parser.add_argument("--page", action="store_true", help="write the tables into docs/distributed.md")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for preset in options.graphs:
        scale = options.scale if preset == "mag" else 1.0
        execution = execution_for(preset, scale, 1024 if preset == "mag" else 128)
        sampler = HostSampler(execution.sampling.sampled, execution.plan, 2)
        metapaths = default_metapaths(execution.graph.schema, execution.graph.target or "")
        for method in options.methods:
            for num_parts in options.parts:
                started = time.perf_counter()
                assignment = assign(execution.graph, method, num_parts, metapaths=metapaths)
                cut_s = time.perf_counter() - started
                for strategy in STRATEGIES:
                    counter = Counter(execution, sampler, Placement.of(assignment), strategy)
                    steps = min(options.steps, execution.steps_per_epoch)
                    counts = [counter.step(number) for number in range(steps)]
                    means = {name: float(np.mean([each[name] for each in counts])) for name in counts[0]}
                    case = {"graph": preset, "scale": scale, "method": method, "parts": num_parts}
                    size = {"strategy": strategy, "steps": steps, "dense_bytes": counter.dense_bytes, "cut_s": cut_s}
                    rows.append(case | size | means)
                print(preset, method, num_parts, f"{time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
                store(options.out, {"commit": commit(), "latency_s": LATENCY_S, "networks": NETWORKS, "rows": rows})
    timed = list(steps_of(options.graphs, options.scale, options.loopback, STRATEGIES)) if options.loopback else []
    store(
        options.out, {"commit": commit(), "latency_s": LATENCY_S, "networks": NETWORKS, "rows": rows, "loopback": timed}
    )
    draw(options.out.with_suffix(".png"), rows)
    Say().table("a step", HEADER, table(rows))
    if timed:
        Say().table("a step, measured over loopback", LOOPBACK, loopback_table(timed))
    if options.page:
        write_page(rows, timed)
    return 0


def write_page(rows: Sequence[dict[str, Any]], timed: Sequence[dict[str, Any]]) -> None:
    """The tables of 4 parts, and of loopback, in `docs/distributed.md`."""
    body = _markdown(HEADER, table([row for row in rows if row["parts"] == PAGE_PARTS]))
    if timed:
        body += (
            "\n\nMeasured: medians of the steps of processes that train together on this machine over loopback, METIS"
            " parts. They share its cores, so more processes are no faster here; what can be compared is one strategy"
            " with another.\n\n" + _markdown(LOOPBACK, loopback_table(timed))
        )
    write_between(ROOT / "docs" / "distributed.md", BEGIN, END, f"\n{body}\n")


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


HEADER = [
    "graph", "parts", "method", "strategy", "feature MiB", "rows and gradients MiB", "model MiB", "remote rows",
    "targets max / mean", "vertices max / mean", "spilled", "drawing: slowest / all, ms", "10 Gb/s, modelled ms",
]  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The cells of each case."""
    return [
        [
            row["graph"], str(row["parts"]), row["method"], row["strategy"], f"{row['feature_bytes'] / 2**20:.2f}",
            f"{(row['row_bytes'] + row['gradient_bytes']) / 2**20:.2f}", f"{row['model_bytes'] / 2**20:.2f}",
            f"{row['remote_rows']:,.0f}", f"{row['target_balance']:.2f}", f"{row['work_balance']:.2f}",
            f"{row['spilled']:.1f}", f"{1e3 * row['drawing_s slowest']:.2f} / {1e3 * row['drawing_s all']:.2f}",
            f"{1e3 * row['model_s 10 Gb/s']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip


def draw(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Remote bytes of rows over the number of parts: a panel a graph, a line a strategy and method."""
    from matplotlib.figure import Figure

    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    figure = Figure(figsize=(4.5 * len(graphs), 3.6), layout="constrained")
    for axes, graph in zip(figure.subplots(1, len(graphs), squeeze=False)[0], graphs, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            for strategy, style in zip(STRATEGIES, ("--", "-", ":", "-."), strict=True):
                own = [r for r in rows if (r["graph"], r["method"], r["strategy"]) == (graph, method, strategy)]
                kinds = ("feature_bytes", "row_bytes", "gradient_bytes", "model_bytes", "request_bytes")
                moved = [sum(row[kind] for kind in kinds) / 2**20 for row in own]
                axes.plot([row["parts"] for row in own], moved, style, marker=".", label=f"{strategy}, {method}")
        axes.set(title=graph, xlabel="parts", ylabel="MiB a step, counted", xscale="log")
        axes.set_xticks(
            sorted({row["parts"] for row in rows}), [str(n) for n in sorted({row["parts"] for row in rows})]
        )
        axes.minorticks_off()
    axes.legend(fontsize=6)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
