"""All node types and relations as one undirected weighted graph, which is what edge-cut partitioners work on."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph


@dataclasses.dataclass(frozen=True, eq=False)
class Adjacency:
    """Who is joined to whom, whatever the relation and direction.

    Attributes:
        first: node type -> the number of its node 0; nodes of a type are consecutive.
        matrix: CSR `[nodes, nodes]` of int32, symmetric, without a diagonal; an entry counts the edges between two
            nodes, divided by what divides all of them, so that relations stored with their reverses count once.
    """

    first: Mapping[str, int]
    matrix: sparse.csr_array

    def rows(self, node_type: str, ids: np.ndarray) -> sparse.csr_array:
        """The rows of some nodes of a type."""
        return self.matrix[self.first[node_type] + ids]


def adjacency(graph: HeteroGraph) -> Adjacency:
    """Merges all relations of a heterograph.

    Raises:
        InputError: the graph has 2**31 nodes or more.
    """
    first, total = {}, 0
    for node_type, count in graph.num_nodes.items():
        first[node_type] = total
        total += count
    if total >= 2**31:
        raise InputError(f"graph {graph.name!r} has {total} nodes; partitioning takes up to {2**31 - 1}")
    packed = np.empty(graph.num_edges, np.int64)
    at = 0
    for relation, edges in graph.edges.items():
        senders = edges.senders.astype(np.int64) + first[relation.source]
        receivers = edges.receivers.astype(np.int64) + first[relation.target]
        own = packed[at : at + len(senders)]
        np.minimum(senders, receivers, out=own)
        own <<= 32
        own |= np.maximum(senders, receivers, out=senders)
        at += len(senders)
    packed.sort()
    starts = np.flatnonzero(np.diff(packed, prepend=-1))
    weights = np.diff(starts, append=len(packed)).astype(np.int32)
    pairs = packed[starts]
    del packed, starts
    low, high = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
    del pairs
    apart = low != high
    if not apart.all():
        low, high, weights = low[apart], high[apart], weights[apart]
    if len(weights):
        weights //= np.gcd.reduce(weights)
    upper = sparse.coo_array((weights, (low, high)), shape=(total, total)).tocsr()
    return Adjacency(first, sparse.csr_array(upper + upper.T))
