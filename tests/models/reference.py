"""The models' forward passes in plain NumPy float64, one node and one edge at a time."""

import numpy as np

from jhgnn.graph.hetero_graph import HeteroGraph


def features(graph: HeteroGraph, params, hidden: int) -> dict[str, np.ndarray]:
    """Each type's rows as float64: its features, or its table of embeddings."""
    rows = {}
    for node_type in graph.num_nodes:
        if node_type in graph.features:
            matrix = graph.features[node_type]
            rows[node_type] = np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray(), np.float64)
        elif node_type in params.get("embeddings", {}).get("tables", {}):
            rows[node_type] = np.asarray(params["embeddings"]["tables"][node_type], np.float64)
    return rows


def in_edges(graph: HeteroGraph, relation, node: int) -> np.ndarray:
    edges = graph.edges[relation]
    return edges.senders[edges.indptr[node] : edges.indptr[node + 1]]


def mean_of_neighbours(neighbours: list[np.ndarray], z: np.ndarray) -> np.ndarray:
    return np.stack([z[ids].mean(axis=0) if len(ids) else np.zeros(z.shape[1]) for ids in neighbours])


def attention(neighbours, z_src, z_dst, a_src, a_dst, slope: float, of_edges=None) -> np.ndarray:
    """GAT eq. 1-6 for one head: `z` [nodes, width], `a` [width]; `of_edges` are a node's in-edges' own logits."""
    out = np.zeros((len(neighbours), z_src.shape[1]))
    for node, ids in enumerate(neighbours):
        if len(ids):
            logits = z_src[ids] @ a_src + z_dst[node] @ a_dst + (0 if of_edges is None else of_edges[node])
            scores = np.where(logits > 0, logits, slope * logits)
            weights = np.exp(scores - scores.max())
            out[node] = weights / weights.sum() @ z_src[ids]
    return out


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def classify(params, embeddings: np.ndarray) -> np.ndarray:
    linear = params["classifier"]["linear"]
    return embeddings @ np.asarray(linear["kernel"], np.float64) + np.asarray(linear["bias"], np.float64)
