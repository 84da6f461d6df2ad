"""Modelled hit rates: of each semantic graph in each pass, in other orders, and of several graphs in a row."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.locality.caches import Cache, cpu_caches, gpu_caches, row_bytes
from bench.locality.gathers import direction, gathers
from bench.locality.graphs import Named, heterographs, semantic_graphs
from bench.locality.orders import ORDERS, Order, by_middle, by_shared_rows, renumbered, shuffled
from bench.locality.sampling import Reuses, exact, sampled
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_relation

WIDTHS = {"256 B": 256, "2048 B": 2048}
"""Of a row: hidden 64 in float32, heads included, as the recipes have it; and hidden 64 for each of 8 heads."""

SAMPLED_FROM = 8_000_000
"""Edges from which a graph is sampled."""
RATE = 0.02
SEEDS = (0, 1, 2)

CURVE_ROWS = tuple(int(rows) for rows in np.unique(np.rint(np.geomspace(16, 2**20, 49)).astype(np.int64)))
"""Sizes of caches, in rows, for the curves."""

Row = dict[str, Any]


def caches() -> list[Cache]:
    """Those of this machine, and of GPUs."""
    return [*cpu_caches(), *gpu_caches()]


def hit_rates(reuses: Reuses, of: list[Cache], width_bytes: int) -> dict[str, float]:
    """Cache -> share of the gathered rows that it holds."""
    return {
        cache.name: round(reuses.hit_rate(cache.bytes // row_bytes(width_bytes, cache.line_bytes)), 5) for cache in of
    }


def pass_rows(named: Named, of: list[Cache]) -> Iterator[Row]:
    """Forward and backward of one graph, from empty caches and repeated: exact, and sampled beside it."""
    for backward in (False, True):
        csr, num_rows = direction(named.graph, backward)
        start = time.perf_counter()
        trace = gathers(csr)
        row: Row = {
            "kind": "modelled",
            "group": "passes",
            "graph": named.key,
            "what": "relation" if named.metapath is None else "metapath",
            "pass": "backward" if backward else "forward",
            "edges": len(trace),
            "rows": num_rows,
            "rows_read": len(np.unique(trace)),
        }
        for repeated in (False, True):
            found = exact(trace, repeated=repeated)
            name = "repeated" if repeated else "from empty"
            row[name] = {width: hit_rates(found, of, size) for width, size in WIDTHS.items()}
            row[f"{name} curve"] = [round(found.hit_rate(rows), 5) for rows in CURVE_ROWS]
        row["exact_s"] = round(time.perf_counter() - start, 2)
        row["sample"] = sample_error(trace, row["from empty curve"])
        yield row


def sample_error(trace: np.ndarray, curve: list[float], rate: float = 0.1) -> Row:
    """How far hit rates of a sample are from the exact ones, over the sizes up to all rows: mean and largest."""
    distinct = len(np.unique(trace))
    sizes = [rows for rows in CURVE_ROWS if rows <= max(distinct, CURVE_ROWS[0])]
    errors = []
    start = time.perf_counter()
    for seed in SEEDS:
        found = sampled(trace, rate, seed=seed)
        errors += [abs(found.hit_rate(rows) - known) for rows, known in zip(sizes, curve, strict=False)]
    return {
        "rate": rate,
        "items": distinct,
        "mean_error": round(float(np.mean(errors)), 5),
        "largest_error": round(float(np.max(errors)), 5),
        "seconds": round((time.perf_counter() - start) / len(SEEDS), 2),
    }


def order_rows(named: Named, heterograph: HeteroGraph, of: list[Cache]) -> Iterator[Row]:
    """One graph in other orders of its vertices, forward, repeated."""
    orders: dict[str, Order | None] = {"as it is": None, "shuffled": shuffled(named.graph)}
    orders |= {name: make(named.graph) for name, make in ORDERS.items()}
    if named.metapath is not None:
        orders["middle"] = by_middle(heterograph, named.metapath, named.graph)
    for name, order in orders.items():
        graph = named.graph if order is None else renumbered(named.graph, order)
        found = exact(gathers(graph.incoming), repeated=True)
        yield {
            "kind": "modelled",
            "group": "vertex orders",
            "graph": named.key,
            "order": name,
            "edges": graph.num_edges,
            "repeated": {width: hit_rates(found, of, size) for width, size in WIDTHS.items()},
        }


def graph_order_rows(dataset: str, heterograph: HeteroGraph, of: list[Cache]) -> Iterator[Row]:
    """All relations of a data set in several orders, where relations of one source type gather from one table.

    So it is in R-GCN where the mean is taken before the projection; a table for each relation shares nothing.
    """
    offsets, total = {}, 0
    for node_type, count in heterograph.num_nodes.items():
        offsets[node_type], total = total, total + count
    relations = list(heterograph.edges)
    traces = [
        gathers(build_relation(heterograph, relation).incoming).astype(np.int64) + offsets[relation.source]
        for relation in relations
    ]
    read = [np.unique(trace) for trace in traces]
    orders = {
        "as listed": list(range(len(relations))),
        "most shared next": by_shared_rows(read),
        "least shared next": by_shared_rows(read, most=False),
    }
    for name, order in orders.items():
        found = exact(np.concatenate([traces[index] for index in order]), repeated=True)
        yield {
            "kind": "modelled",
            "group": "graph orders",
            "dataset": dataset,
            "order": name,
            "relations": [str(relations[index]) for index in order],
            "rows_in_all": sum(map(len, read)),
            "rows_distinct": len(np.unique(np.concatenate(read))),
            "repeated": {width: hit_rates(found, of, size) for width, size in WIDTHS.items()},
        }


def large_rows(heterograph: HeteroGraph, of: list[Cache]) -> Iterator[Row]:
    """Relations of a large graph, forward and backward: exact up to `SAMPLED_FROM` edges, and from several samples."""
    for relation in heterograph.edges:
        graph: SemanticGraph = build_relation(heterograph, relation)
        for backward in (False, True):
            csr, num_rows = direction(graph, backward)
            trace = gathers(csr)
            row: Row = {
                "kind": "modelled",
                "group": "large",
                "graph": f"{heterograph.name} {relation}",
                "pass": "backward" if backward else "forward",
                "edges": len(trace),
                "rows": num_rows,
                "rate": RATE,
            }
            start = time.perf_counter()
            samples = [sampled(trace, RATE, seed=seed) for seed in SEEDS]
            row["sampled_s"] = round((time.perf_counter() - start) / len(SEEDS), 2)
            row["from empty"], row["spread"] = {}, {}
            for width, size in WIDTHS.items():
                each = [hit_rates(one, of, size) for one in samples]
                names = each[0]
                row["from empty"][width] = {n: round(float(np.mean([e[n] for e in each])), 5) for n in names}
                row["spread"][width] = {n: round(float(np.ptp([e[n] for e in each])), 5) for n in names}
            if len(trace) <= SAMPLED_FROM:
                whole = exact(trace)
                row["exact"] = {width: hit_rates(whole, of, size) for width, size in WIDTHS.items()}
            yield row


def model(data_root: Path | None, large_scale: float) -> Iterator[Row]:
    """All rows, as they are made.

    Args:
        data_root: of the real data, or None for synthetic graphs of the same sizes.
        large_scale: of the synthetic MAG; 0 leaves it out.
    """
    from jhgnn.data.synthetic import generate

    of = caches()
    graphs = heterographs(data_root)
    for named in semantic_graphs(graphs):
        yield from pass_rows(named, of)
    for named in semantic_graphs(graphs):
        yield from order_rows(named, graphs[named.dataset], of)
    for dataset, heterograph in graphs.items():
        yield from graph_order_rows(dataset, heterograph, of)
    if large_scale:
        yield from large_rows(generate("mag", scale=large_scale), of)
