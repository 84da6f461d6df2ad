"""The heterograph with its types erased: one homogeneous graph over all nodes, for the GCN and GAT controls."""

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph

NAME = "erased"


def type_offsets(num_nodes: dict[str, int]) -> dict[str, int]:
    """Where each type's nodes start when all types stand one after another."""
    ends = np.cumsum([0, *num_nodes.values()])
    return {node_type: int(start) for node_type, start in zip(num_nodes, ends, strict=False)}


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
