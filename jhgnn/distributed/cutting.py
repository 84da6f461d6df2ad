"""Cuts a graph into parts by a method's name, with targets evened out."""

from collections.abc import Sequence

from jhgnn.distributed.adjacency import adjacency
from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.methods.metapath import metapath_assignment
from jhgnn.distributed.methods.metis import metis_assignment
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.methods.target_balance import balance_targets
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath

TOLERANCE = 1.05
"""The most targets of a split that a part may own, over an equal share."""


def assign(
    graph: HeteroGraph,
    method: str,
    num_parts: int,
    *,
    metapaths: Sequence[Metapath] = (),
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Assignment:
    """The owners of a graph's nodes.

    Args:
        graph: whole.
        method: `metis`, `random` or `metapath`.
        num_parts: how many.
        metapaths: that `metapath` propagates along.
        seed: of the method.
        tolerance: the most targets of a split that a part may own, over an equal share.

    Raises:
        InputError: METIS is not installed; label propagation has no metapaths to propagate along.
    """
    if method == "random":
        return random_assignment(graph, num_parts, seed)
    joined = adjacency(graph)
    if method == "metapath":
        return metapath_assignment(graph, joined, tuple(metapaths), num_parts, seed, tolerance)
    return balance_targets(metis_assignment(graph, joined, num_parts, seed), graph, joined, tolerance)
