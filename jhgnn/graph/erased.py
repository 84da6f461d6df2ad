"""The heterograph with its types erased: one homogeneous graph over all nodes, for the GCN and GAT controls."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph

NAME = "erased"


def type_offsets(num_nodes: dict[str, int]) -> dict[str, int]:
    """Where each type's nodes start when all types stand one after another."""
    ends = np.cumsum([0, *num_nodes.values()])
    return {node_type: int(start) for node_type, start in zip(num_nodes, ends, strict=False)}


def ids_of_type(nodes: Mapping[str, Any], node_type: str, offsets: Sequence[tuple[str, int, int]]) -> Any:
    """A type's ids among a frontier's, int32 of the frontier's shape, -1 elsewhere; NumPy or jnp as the frontier is.

    Args:
        nodes: node type -> ids; with erased types the one type `NAME`.
        offsets: type, first node and number of nodes of each erased type; none where types are not erased.
    """
    if not offsets:
        return nodes[node_type]
    (start, count) = next((start, count) for name, start, count in offsets if name == node_type)
    ids = nodes[NAME]
    xp = np if isinstance(ids, np.ndarray) else jnp
    return xp.where((ids >= start) & (ids < start + count), ids - start, -1).astype(np.int32)


def erase_types(graph: HeteroGraph) -> SemanticGraph:
    """All relations as one undirected graph with self-loops and without parallel edges; nodes in schema order."""
    num_nodes = dict(graph.num_nodes)
    offsets, total = type_offsets(num_nodes), sum(num_nodes.values())
    nodes = np.arange(total, dtype=np.int64)
    pairs = [nodes * total + nodes]
    for relation, edges in graph.edges.items():
        senders = edges.senders.astype(np.int64) + offsets[relation.source]
        receivers = edges.receivers.astype(np.int64) + offsets[relation.target]
        pairs += [receivers * total + senders, senders * total + receivers]
    receivers, senders = np.divmod(np.unique(np.concatenate(pairs)), total)
    return SemanticGraph.from_pairs(senders, receivers, total, total, NAME)
