"""Times of the CPU kernels on one processor: slowdowns of Table 3's graphs, and other orders of vertices and graphs."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bench.locality.caches import cpu_caches
from bench.locality.graphs import heterographs, other_graphs, semantic_graphs
from bench.locality.kernels import HEADS, KERNELS, Kernel
from bench.locality.orders import ORDERS, Order, by_middle, by_shared_rows, renumbered, shuffled
from bench.locality.slowdown import DEGREES, level_costs, prediction, slowdown_row
from bench.locality.timed import in_rounds, repeated, repeats
from bench.ops.cases import mag_relation
from bench.ops.order import SOURCES, orders
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_relation
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.ops.neighbor_mean import neighbor_mean

Row = dict[str, Any]

LARGEST_SEGMENT_EDGES = 2_500_000
"""Segment sums hold an array of a message for each edge."""


def slowdown_rows(data_root: Path | None, budget_s: float) -> Iterator[Row]:
    """Costs of levels, then each graph's measured slowdown beside the predicted one, then their rank correlations."""
    caches = cpu_caches()
    levels = [*(cache.name for cache in caches), "memory"]
    graphs = {
        "Table 3": list(semantic_graphs(heterographs(data_root))),
        "other graphs": list(other_graphs(data_root)),
    }
    found: dict[tuple[str, str], list[Row]] = {}
    for kernel in KERNELS:
        costs = level_costs(kernel, caches, budget_s)
        yield {
            "kind": "measured",
            "group": "levels",
            "kernel": kernel.name,
            "degrees": DEGREES,
            "ns": {
                name: np.round(1e9 * seconds, 3).tolist() for name, seconds in zip(levels, costs.plain, strict=True)
            },
            "prefetched_ns": {
                name: np.round(1e9 * seconds, 3).tolist()
                for name, seconds in zip(levels, costs.prefetched, strict=True)
            },
        }
        for of, each in graphs.items():
            for named in each:
                row: Row = {"of": of} | slowdown_row(kernel, named.key, named.graph, caches, budget_s)
                row |= prediction(kernel, named.graph, caches, costs)
                found.setdefault((of, kernel.name), []).append(row)
                yield row
    for of, kernel in itertools.product(graphs, KERNELS):
        if rows := found.get((of, kernel.name)):
            yield rank_row(of, kernel.name, rows)


def rank_row(of: str, name: str, rows: list[Row]) -> Row:
    """Spearman's coefficient of predicted and measured slowdowns, and of the first cache's miss rate alone."""
    measured = [row["slowdown"] for row in rows]
    return {
        "kind": "measured",
        "group": "ranks",
        "of": of,
        "kernel": name,
        "graphs": len(rows),
        "spearman": round(float(stats.spearmanr([row["predicted"] for row in rows], measured).statistic), 4),
        "spearman_of_miss_rate": round(float(stats.spearmanr([r["miss_rate"] for r in rows], measured).statistic), 4),
        "never_quiet": sum(not row["quiet"] for row in rows),
    }


def vertex_order_rows(data_root: Path | None, budget_s: float, large_scale: float) -> Iterator[Row]:
    """The kernels on graphs in other orders of their vertices, over the same in the order that the data has."""
    graphs = heterographs(data_root)
    for named in semantic_graphs(graphs):
        if named.metapath is not None:
            made = {name: make(named.graph) for name, make in ORDERS.items()}
            made["middle"] = by_middle(graphs[named.dataset], named.metapath, named.graph)
            yield from _order_rows(named.key, named.graph, made | {"shuffled": shuffled(named.graph)}, budget_s)
    if large_scale:
        large = mag_relation(large_scale)  # its vertices are in a random order
        yield from _order_rows("mag AP", large, {name: make(large) for name, make in ORDERS.items()}, budget_s)


def _order_rows(key: str, graph: SemanticGraph, made: dict[str, Order], budget_s: float) -> Iterator[Row]:
    others = {"as it is": graph} | {name: renumbered(graph, order) for name, order in made.items()}
    for op in ("mean", "attention"):
        for implementation in ("native", "segment"):
            if implementation == "segment" and graph.num_edges > LARGEST_SEGMENT_EDGES:
                continue
            runs = repeats(graph.num_edges)
            call = jax.jit(repeated(_forward(op, implementation), runs))
            kernel = Kernel(op, False, 64)
            arguments = kernel.arguments(graph)
            views = ("coo",) if implementation == "segment" else ()
            contenders = {name: _call(call, other.place(views), arguments) for name, other in others.items()}
            timed = in_rounds(contenders, runs, budget_s)
            yield {
                "kind": "measured",
                "group": "vertex orders",
                "graph": key,
                "op": op,
                "implementation": implementation,
                "edges": graph.num_edges,
            } | timed.facts()


def _forward(op: str, implementation: str) -> Callable[..., jax.Array]:
    def run(graph: SemanticGraph, x: jax.Array, src: jax.Array, dst: jax.Array) -> jax.Array:
        if op == "mean":
            return neighbor_mean(graph, x, implementation=implementation)
        return neighbor_attention(graph, x.reshape(len(x), HEADS, -1), src, dst, implementation=implementation)

    return run


def graph_order_rows(data_root: Path | None, budget_s: float) -> Iterator[Row]:
    """All relations of a data set one after the other, in several orders; and four graphs of two large tables."""
    for dataset, heterograph in heterographs(data_root).items():
        for floats in (64, 512):
            yield _relations_row(dataset, heterograph, floats, budget_s)
    for name, num_sources in SOURCES.items():
        timed = in_rounds(orders(num_sources, "native"), 1, 10 * budget_s)
        yield {"kind": "measured", "group": "graph orders", "dataset": name, "row": "256 B"} | timed.facts()


def _relations_row(dataset: str, heterograph: HeteroGraph, floats: int, budget_s: float) -> Row:
    rng = np.random.default_rng(0)
    tables = {
        node_type: jnp.asarray(rng.standard_normal((count, floats), np.float32))
        for node_type, count in heterograph.num_nodes.items()
    }
    relations = list(heterograph.edges)
    graphs = [build_relation(heterograph, relation) for relation in relations]
    offsets = dict(zip(tables, np.cumsum([0, *map(len, tables.values())]), strict=False))
    read = [
        np.unique(np.asarray(graph.incoming.indices)) + offsets[relation.source]
        for graph, relation in zip(graphs, relations, strict=True)
    ]
    found = {
        "as listed": list(range(len(graphs))),
        "most shared next": by_shared_rows(read),
        "least shared next": by_shared_rows(read, most=False),
    }
    mean = jax.jit(lambda graph, x: neighbor_mean(graph, x, implementation="native"))
    placed = [(graph.place(()), tables[relation.source]) for graph, relation in zip(graphs, relations, strict=True)]
    contenders = {name: _in_turn(mean, [placed[index] for index in order]) for name, order in found.items()}
    timed = in_rounds(contenders, 1, budget_s)
    return {"kind": "measured", "group": "graph orders", "dataset": dataset, "row": f"{4 * floats} B"} | timed.facts()


def _in_turn(function: Any, calls: list[tuple[Any, ...]], times: int = 20) -> Callable[[], Any]:
    def run() -> Any:
        out = None
        for _ in range(times):
            for arguments in calls:
                out = jax.block_until_ready(function(*arguments))
        return out

    return run


def _call(call: Any, graph: SemanticGraph, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(graph, *arguments)


def pin() -> None:
    """This process on one processor: one thread walks each graph from its first row to its last, as traces do.

    Before JAX starts its threads.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def replaced(rows: list[Row], new: list[Row]) -> list[Row]:
    """Earlier rows without those of the groups measured now, and these."""
    groups = {row["group"] for row in new}
    return [row for row in rows if row["group"] not in groups] + new
