"""Semantic graphs that every implementation of every op has to get right, by name."""

import ctypes
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from jhgnn import native
from jhgnn.graph.sampled import FrozenCounts, NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import VIEWS, SemanticGraph
from jhgnn.ops.implementation import Op
from jhgnn.sampling.compressed import with_edges


def _random(num_sources: int, num_targets: int, num_edges: int, seed: int = 0) -> SemanticGraph:
    rng = np.random.default_rng(seed)
    senders, receivers = rng.integers(0, num_sources, num_edges), rng.integers(0, num_targets, num_edges)
    return SemanticGraph.from_pairs(senders, receivers, num_sources, num_targets, "random")


def _pairs(senders: list[int], receivers: list[int], num_sources: int, num_targets: int) -> SemanticGraph:
    return SemanticGraph.from_pairs(np.array(senders, int), np.array(receivers, int), num_sources, num_targets, "pairs")


def _hub(incoming: bool) -> SemanticGraph:
    """20,000 edges at one vertex, more than the native kernels give to one thread, each pair up to 200 times."""
    rng = np.random.default_rng(1)
    many, one = rng.integers(0, 200, 20_000), np.zeros(20_000, int)
    extra = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    ends = [np.concatenate([many, extra[0]]), np.concatenate([one, extra[1]])]
    senders, receivers = ends if incoming else ends[::-1]
    return SemanticGraph.from_pairs(senders, receivers, *((200, 3) if incoming else (3, 200)), "hub")


def _tiled() -> SemanticGraph:
    """Wide and dense enough that the native kernels walk tiles of columns, both ways, with a hub among the rows."""
    rng = np.random.default_rng(2)
    senders, receivers = rng.integers(0, 1_500, 150_000), rng.integers(0, 1_450, 150_000)
    receivers[:17_000] = 7
    return SemanticGraph.from_pairs(senders, receivers, 1_500, 1_450, "tiled")


GRAPHS = {
    "bipartite": _random(37, 29, 300),
    "isolated": _random(40, 60, 30),  # targets and sources without edges
    "dense": _random(23, 31, 700),  # about half of the pairs are joined by parallel edges
    "parallel": _pairs([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 1], 3, 3),
    "hub_in": _hub(incoming=True),
    "hub_out": _hub(incoming=False),
    "tiled": _tiled(),
    "one_edge": _pairs([1], [2], 3, 4),
    "empty": _pairs([], [], 5, 6),
    "no_sources": _pairs([], [], 0, 4),
    "no_targets": _pairs([], [], 4, 0),
    "no_nodes": _pairs([], [], 0, 0),
}

HUBS = ("hub_in", "hub_out", "tiled")
"""Those with a vertex of thousands of edges, whose sums lose more digits."""


AS_TABLES = tuple(sorted(GRAPHS.keys() - {"tiled", "no_sources", "no_nodes"}))
"""Those that a neighbour table can hold: not one of 25 million padded entries, nor one without a slot to point at."""


class Way(NamedTuple):
    """An implementation, the kind of graph that it is given, and the platform that it is traced for."""

    name: str
    takes: type = SemanticGraph
    platform: str = "cpu"

    @property
    def graphs(self) -> tuple[str, ...]:
        return tuple(sorted(GRAPHS)) if self.takes is SemanticGraph else AS_TABLES


def ways(op: Op) -> list[Way]:
    """Every way to compute an op on the CPU."""
    return [Way(each.name, each.takes) for each in op.implementations if each.runs_on("cpu")]


def kernels(op: Op, platform: str) -> list[Way]:
    """The ways by kernels of a platform's own."""
    found = (each for each in op.implementations if each.platforms == (platform,))
    return [Way(each.name, each.takes, platform) for each in found]


SLOW_TO_COMPILE = (Way("bucketed", NeighborTable),)


def of_each(found: list[Way]) -> Any:
    """A test for each way, `way`; slow, where compiling takes seconds."""
    return pytest.mark.parametrize(
        "way",
        [
            pytest.param(
                way,
                id=f"{way.takes.__name__}-{way.name}",
                marks=[pytest.mark.slow] if way in SLOW_TO_COMPILE else [],
            )
            for way in found
        ],
    )


QUICK = ("bipartite", "isolated", "hub_in", "empty")
"""Graphs on which the default suite runs what is compiled anew for each shape."""


def marks_of(way: Way, name: str) -> list[pytest.MarkDecorator]:
    """`slow`, for a way on a graph that the default suite leaves out."""
    quick = name in QUICK and way not in SLOW_TO_COMPILE
    return [] if quick or (way.name, way.platform) == ("native", "cpu") else [pytest.mark.slow]


def on_each_graph(found: list[Way]) -> Any:
    """A test for each way on each graph that it can be given, `way` and `name`."""
    pairs = [
        pytest.param(way, name, id=f"{way.takes.__name__}-{way.name}-{name}", marks=marks_of(way, name))
        for way in found
        for name in way.graphs
    ]
    return pytest.mark.parametrize(("way", "name"), pairs)


def placed(graph: SemanticGraph, takes: type = SemanticGraph) -> Any:
    """On the device, as that kind of graph with all views, so that any implementation of the kind takes it."""
    return graph.place(VIEWS) if takes is SemanticGraph else jax.device_put(as_table(graph))


def as_table(graph: SemanticGraph) -> NeighborTable:
    """All of a graph's edges as a sampled table, whose global ids are the graph's own, on the host."""
    counts = np.diff(graph.incoming.indptr).astype(np.int32)
    senders = np.zeros((graph.num_targets, max(1, counts.max(initial=0))), np.int32)
    senders[np.arange(senders.shape[1]) < counts[:, None]] = graph.incoming.indices
    ids = (np.arange(count, dtype=np.int32) for count in (graph.num_sources, graph.num_targets))
    table = NeighborTable(senders, counts, None, *ids, num_sources=graph.num_sources, name=graph.name)
    capacities = (FrozenCounts.of({"target": graph.num_targets}), FrozenCounts.of({"source": graph.num_sources}))
    none = np.zeros((2, 1), np.int32), np.zeros((), bool)
    return with_edges(SampledBlocks({}, ({"all": table},), *none, capacities, ("target",)), ("all",)).hops[0]["all"]


def relabelled(graph: SemanticGraph, sources: np.ndarray, targets: np.ndarray) -> SemanticGraph:
    """The graph with source i as `sources[i]`, target j as `targets[j]`, its edges read in another order."""
    senders, receivers = edges_of(graph)
    order = np.random.default_rng(3).permutation(graph.num_edges)
    return SemanticGraph.from_pairs(
        sources[senders][order], targets[receivers][order], graph.num_sources, graph.num_targets, graph.name
    )


def edges_of(graph: SemanticGraph) -> tuple[np.ndarray, np.ndarray]:
    """(senders, receivers) in the order of the in-edges, on the host."""
    incoming = jax.tree.map(np.asarray, graph.incoming)
    return incoming.indices, np.repeat(np.arange(graph.num_targets), np.diff(incoming.indptr))


def is_tiled(graph: SemanticGraph, column_bytes: int) -> bool:
    """Whether the native kernels walk tiles of columns both ways, where a vertex has so many bytes."""
    sizes = [(graph.num_targets, graph.num_sources), (graph.num_sources, graph.num_targets)]
    tile_columns = native.library().jhgnn_tile_columns
    arguments = [(rows, graph.num_edges, columns, column_bytes) for rows, columns in sizes]
    return all(tile_columns(*map(ctypes.c_int64, each)) > 0 for each in arguments)


def mean_size(*arrays: np.ndarray) -> float:
    """The size that an absolute tolerance is relative to."""
    return max((float(np.abs(array).max()) for array in arrays if array.size), default=0.0)
