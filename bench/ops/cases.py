"""The named graphs of `bench.ops`: real ones where the data is, and synthetic ones of telling shapes."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench.ops.thresholds import SWEEP
from bench.semantic_graph_build import TABLE_3, read_graphs
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_metapath

HEADS, WIDTH = 8, 8
"""Of attention; means are of as many floats a vertex."""

MAG = {"num_sources": 1_134_649, "num_targets": 736_389, "num_edges": 7_145_660}
"""Authors, papers and the writes relation of ogbn-mag."""

NUM_RELATIONS = 90

DENSITIES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""The sweep from which `bench.ops.thresholds` derives where dense products begin to pay."""


def mag_relation(scale: float = 1.0) -> SemanticGraph:
    """As ogbn-mag's author -> paper: authors by a power law with exponent 2.2, papers by one with 3; ids shuffled."""
    rng = np.random.default_rng(0)
    num_sources, num_targets, num_edges = (round(scale * count) for count in MAG.values())
    ends = []
    for count, exponent in ((num_sources, 2.2), (num_targets, 3.0)):
        weights = np.arange(1, count + 1) ** (-1.0 / (exponent - 1.0))
        bounds = np.cumsum(weights)
        drawn = np.searchsorted(bounds, rng.random(num_edges) * bounds[-1])
        ends.append(rng.permutation(count)[np.minimum(drawn, count - 1)])
    senders, receivers = ends
    return SemanticGraph.from_pairs(senders, receivers, num_sources, num_targets, "mag")


def star(scale: float = 1.0) -> SemanticGraph:
    """A million edges into one of 1,000 targets: one row must not hold up a thread."""
    num_sources, num_targets, num_edges = (max(1, round(scale * count)) for count in (100_000, 1_000, 1_000_000))
    senders = np.random.default_rng(0).integers(0, num_sources, num_edges)
    return SemanticGraph.from_pairs(senders, np.zeros(num_edges, int), num_sources, num_targets, "star")


def chain(scale: float = 1.0) -> SemanticGraph:
    """300,000 nodes, each with the one before: all overhead of rows, no reuse."""
    nodes = np.arange(round(scale * 300_000))
    return SemanticGraph.from_pairs(nodes[:-1], nodes[1:], len(nodes), len(nodes), "chain")


def small_relations() -> list[SemanticGraph]:
    """90 relations of 2,000 edges among 1,000 nodes: all overhead of calls."""
    rng = np.random.default_rng(0)
    return [
        SemanticGraph.from_pairs(rng.integers(0, 1000, 2000), rng.integers(0, 1000, 2000), 1000, 1000, f"r{i}")
        for i in range(NUM_RELATIONS)
    ]


def of_density(density: float, count: int = 3_000) -> SemanticGraph:
    """As many sources and targets, joined at random."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(count**2, round(density * count**2), replace=False)
    return SemanticGraph.from_pairs(pairs // count, pairs % count, count, count, f"density {density}")


def _metapath_graph(graph: HeteroGraph, text: str) -> list[SemanticGraph]:
    return [build_metapath(graph, graph.schema.metapath(text))]


def cases(data_root: Path) -> Iterator[tuple[str, Callable[[], list[SemanticGraph]]]]:
    """(name, what builds its graphs), Table 3 first where the data is."""
    if data_root.is_dir():
        heterographs = read_graphs(data_root)
        for dataset, metapaths in TABLE_3.items():
            graph = heterographs[dataset]
            for text in metapaths:
                yield f"{dataset}_{text}", functools.partial(_metapath_graph, graph, text)
    yield "mag_writes", lambda: [mag_relation()]
    yield "star", lambda: [star()]
    yield "chain", lambda: [chain()]
    yield "90_relations", small_relations
    for density in DENSITIES:
        yield f"{SWEEP}{density:g}", lambda density=density: [of_density(density)]  # type: ignore[misc]
