"""Features of edges as layers read them, so that every op reads them without knowing of them.

A mean over edges of sums is a sum of means, so the mean of edges' features stands beside the graph. Attention needs a
logit for each edge: each pair of a sender and a row of edge features becomes a sender of its own, which has the
original's row and its logit plus the edge's. Edges of one sender with equal features, such as one category, share one.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.semantic_graph import SemanticGraph

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class EdgeFeatures:
    """What a layer reads of one relation's edge features.

    Attributes:
        rows: float32 `[num_targets, width]`, means over in-edges and zeros without any; or `[num_senders, width]`, one
            row for each sender of a graph by `split_senders`, or of a sampled table or chunk in which each edge is one.
        senders: int32 `[num_senders]`, the original of each of those senders; None where `rows` are means.
    """

    rows: Array
    senders: Array | None = None

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])


def mean_features(edges: EdgeSet) -> EdgeFeatures:
    """The means over each receiver's in-edges, float32, summed in float64."""
    assert edges.features is not None
    sums = np.zeros((edges.num_targets, edges.features.shape[1]))
    filled = np.flatnonzero(np.diff(edges.indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(edges.features, edges.indptr[filled], axis=0, dtype=np.float64)
    return EdgeFeatures((sums / np.maximum(1, np.diff(edges.indptr))[:, None]).astype(np.float32))


def split_senders(edges: EdgeSet, name: str = "") -> tuple[SemanticGraph, EdgeFeatures]:
    """The same edges from senders that are split by the features of their edges, and those features.

    A sender without edges is not among them. The graph knows the original ids of senders, which dropout hashes, so that
    it drops the same edges.

    Raises:
        InputError: there are 2**31 edges or more.
    """
    assert edges.features is not None
    distinct, kinds = np.unique(edges.features, axis=0, return_inverse=True)
    num_kinds = max(1, len(distinct))
    split, numbers = np.unique(edges.senders.astype(np.int64) * num_kinds + kinds.reshape(-1), return_inverse=True)
    senders = (split // num_kinds).astype(np.int32)
    graph = SemanticGraph.from_pairs(numbers, edges.receivers, len(split), edges.num_targets, name)
    return dataclasses.replace(graph, sender_ids=senders), EdgeFeatures(distinct[split % num_kinds], senders)
