"""How much slower than resident gathers a graph's gathers should be, from reuse distances and the machine's levels.

A gathered row comes from the nearest cache that holds it. What one costs from each level is measured with the same
kernel on random graphs, whose tables fit that level: by the edges of a row, as what a row costs besides hides part of
the wait, and with or without software prefetching, as the kernel decides by the size of its table. Nothing is fitted to
the times that the prediction is held against:

    predicted = sum over edges e, levels l of P(e from l) c_l(d_e)  /  sum over edges e of c_1(d_e)

with d_e the edges that the kernel walks together with e: of its row, or of its row in its tile. Whether a level has a
row is decided by its reuse distance: exactly for the first cache, whose sets follow from the address in its page; for
the others, whose sets follow from the page's place in memory, by the chance that fewer than a set's ways of the lines
between fall into the same set (Hill and Smith, IEEE Transactions on Computers, 1989).

Caches are taken to hold gathered rows alone. Results and lists of edges are read or written once, in order; where
results were taken to displace rows, more misses were predicted than there are (docs/experiments.md).
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import pdtr

from bench.locality.caches import Cache, row_bytes
from bench.locality.distances import stack_distances
from bench.locality.gathers import gathers, walk
from bench.locality.kernels import PREFETCH_BYTES, Kernel
from bench.locality.resident import resident, resident_rows
from bench.locality.timed import in_rounds, repeated, repeats
from jhgnn.graph.semantic_graph import Csr, SemanticGraph

LARGEST_TABLE_BYTES = 2**30
DEGREES = (1, 2, 4, 8, 16, 64)
ROWS = 4096
"""Of the random graphs; a fourth where they have 64 edges."""


@dataclasses.dataclass(frozen=True)
class LevelCosts:
    """Seconds an edge, by whether the kernel prefetches: `[levels, degrees]`, the nearest first and memory last."""

    plain: np.ndarray
    prefetched: np.ndarray

    def of(self, level: int, degrees: np.ndarray, prefetches: bool) -> np.ndarray:
        """Seconds of an edge from a level, in rows of so many edges: between measured degrees by their logarithms."""
        own = (self.prefetched if prefetches else self.plain)[level]
        return np.interp(np.log(degrees), np.log(DEGREES), own)


def level_costs(kernel: Kernel, caches: Sequence[Cache], budget_s: float) -> LevelCosts:
    """Measured on random graphs.

    Args:
        kernel: the kernel, whose rows they have.
        caches: levels, the nearest first.
        budget_s: of each time.
    """
    touched = [resident_rows(kernel.row_bytes, caches[0].bytes) * kernel.row_bytes]
    for near, far in itertools.pairwise(caches):
        touched.append(min(far.bytes * 3 // 8, 16 * near.bytes))  # mostly too large for the one, well within the other
    touched.append(min(2 * caches[-1].bytes, LARGEST_TABLE_BYTES))
    found = []
    for table in (0, 2 * PREFETCH_BYTES):
        costs = [[_seconds(kernel, size, max(size, table), degree, budget_s) for degree in DEGREES] for size in touched]
        found.append(np.array(costs))
    return LevelCosts(*found)


def _seconds(kernel: Kernel, touched_bytes: int, table_bytes: int, degree: int, budget_s: float) -> float:
    """Of an edge, on a random graph that touches the first rows of a table."""
    rng = np.random.default_rng(0)
    touched, columns = (max(1, size // kernel.row_bytes) for size in (touched_bytes, table_bytes))
    rows = ROWS if degree < 64 else ROWS // 4
    ends = rng.integers(0, touched, rows * degree), np.repeat(np.arange(rows), degree)
    if kernel.backward:
        graph = SemanticGraph.from_pairs(ends[1], ends[0], rows, columns)
    else:
        graph = SemanticGraph.from_pairs(*ends, columns, rows)
    runs = repeats(rows * degree)
    placed, arguments = graph.place(()), kernel.arguments(graph)
    call = jax.jit(repeated(kernel.call(), runs))
    return in_rounds({"": lambda: call(placed, *arguments)}, runs, budget_s).seconds[""] / (rows * degree)


def chances(distances: np.ndarray, row_lines: int, caches: Sequence[Cache]) -> np.ndarray:
    """`[levels + 1, accesses]`, the chance that each level serves an access, memory last.

    Args:
        distances: in rows, each of `row_lines` lines that are read together.
    """
    between, inverse = np.unique(distances, return_inverse=True)
    held = [between < caches[0].bytes // (caches[0].line_bytes * row_lines)]
    for cache in caches[1:]:
        sets = cache.bytes // cache.line_bytes // max(1, cache.ways)
        held.append(pdtr(cache.ways - 1, between * row_lines / sets))
    upto = np.maximum.accumulate(np.array([*held, np.ones(len(between))], float), axis=0)
    return np.diff(upto, axis=0, prepend=0.0)[:, inverse]


def prediction(kernel: Kernel, graph: SemanticGraph, caches: Sequence[Cache], costs: LevelCosts) -> dict[str, Any]:
    """The slowdown of a graph when the kernel runs again and again, and what it is made of; 1 without edges."""
    csr, columns = kernel.csr(graph)
    tile = kernel.tile_columns(graph)
    items = gathers(csr, tile)
    degrees = np.diff(csr.indptr)
    rows = np.repeat(np.arange(len(degrees)), degrees)
    if tile:
        pairs = rows[walk(csr, tile)].astype(np.int64) * (columns // tile + 1) + items // tile
        _, inverse, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        together = counts[inverse]
    else:
        together = degrees[rows]
    # A strip of a row takes the sets that its columns have, and no others: as many rows fit as of whole ones.
    lines = row_bytes(kernel.row_bytes, caches[0].line_bytes) // caches[0].line_bytes
    found = chances(stack_distances(items, repeated=True), lines, caches)
    prefetches = kernel.prefetches(graph)
    resident_s = costs.of(0, together, prefetches).sum() if len(together) else 0.0
    seconds = sum(float((found[level] * costs.of(level, together, prefetches)).sum()) for level in range(len(found)))
    names = [*(cache.name for cache in caches), "memory"]
    shares = found.sum(axis=1) / max(1, found.shape[1])
    return {
        "predicted": round(float(seconds / resident_s), 4) if resident_s else 1.0,
        "served": {name: round(float(share), 5) for name, share in zip(names, shares, strict=True)},
        "miss_rate": round(float(shares[1:].sum()), 5),
        "tile_columns": tile,
        "prefetches": prefetches,
    }


def slowdown_row(
    kernel: Kernel, key: str, graph: SemanticGraph, caches: Sequence[Cache], budget_s: float
) -> dict[str, Any]:
    """Measured: the time of the kernel on a graph over that of resident gathers, in interleaved rounds."""
    csr, _ = kernel.csr(graph)
    edges = len(csr.indices)
    runs = repeats(edges)
    rows = resident_rows(kernel.row_bytes, caches[0].bytes)
    near: Csr = resident(csr, rows, kernel.tile_columns(graph))
    # Where both directions share their arrays, the one that is not walked keeps them.
    other = dataclasses.replace(graph, **{"outgoing" if kernel.backward else "incoming": near})  # type: ignore[arg-type]
    call = jax.jit(repeated(kernel.call(), runs))
    arguments = kernel.arguments(graph)
    contenders = {}
    for name, each in (("resident", other), ("graph", graph)):
        contenders[name] = _call(call, each.place(()), arguments)
    found = in_rounds(contenders, runs, budget_s)
    return {
        "kind": "measured",
        "group": "slowdowns",
        "kernel": kernel.name,
        "graph": key,
        "edges": edges,
        "rows": len(csr.indptr) - 1,
        "slowdown": round(found.ratios["graph"], 4),
        "ns_an_edge": round(1e9 * found.seconds["graph"] / max(1, edges), 4),
    } | found.facts()


def _call(call: Any, graph: SemanticGraph, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(graph, *arguments)
