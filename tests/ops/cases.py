"""Semantic graphs that every implementation of every op has to get right, by name."""

import ctypes

import jax
import numpy as np

from jhgnn import native
from jhgnn.graph.semantic_graph import VIEWS, SemanticGraph


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


def placed(graph: SemanticGraph) -> SemanticGraph:
    """On the device, with all views, so that any implementation takes it."""
    return graph.place(VIEWS)


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
