"""The ops and their gradients in plain NumPy, float64, edge by edge: closed forms, no autodiff."""

import numpy as np

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.random.counter_hash import edge_bits, keep_threshold
from tests.ops.cases import edges_of


def attention(
    graph: SemanticGraph,
    z: np.ndarray,
    logit_src: np.ndarray,
    logit_dst: np.ndarray,
    cotangent: np.ndarray,
    *,
    slope: float = 0.2,
    rate: float = 0.0,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(out, d_z, d_logit_src, d_logit_dst)."""
    z, logit_src, logit_dst, cotangent = (np.asarray(a, np.float64) for a in (z, logit_src, logit_dst, cotangent))
    senders, receivers = edges_of(graph)
    heads = z.shape[1]
    logits = logit_src[senders] + logit_dst[receivers]
    scores = np.where(logits >= 0, logits, slope * logits)
    top = np.full((graph.num_targets, heads), -np.inf)
    np.maximum.at(top, receivers, scores)
    weights = np.exp(scores - top[receivers])
    weights /= _sums(weights, receivers, graph.num_targets)[receivers]
    kept = np.ones_like(weights)
    if rate > 0.0:
        ids = (senders.astype(np.uint32)[:, None], receivers.astype(np.uint32)[:, None])
        bits = edge_bits(np.array([[seed]], np.uint32), *ids, np.arange(heads, dtype=np.uint32)[None, :])
        kept = (bits >= keep_threshold(rate)) / (1.0 - rate)
    out = _sums((weights * kept)[:, :, None] * z[senders], receivers, graph.num_targets)
    d_weights = kept * np.einsum("ehd,ehd->eh", cotangent[receivers], z[senders])
    delta = _sums(weights * d_weights, receivers, graph.num_targets)
    d_logits = weights * (d_weights - delta[receivers]) * np.where(logits >= 0, 1.0, slope)
    d_z = _sums((weights * kept)[:, :, None] * cotangent[receivers], senders, graph.num_sources)
    d_src, d_dst = _sums(d_logits, senders, graph.num_sources), _sums(d_logits, receivers, graph.num_targets)
    return out, d_z, d_src, d_dst


def weighted_sum(
    graph: SemanticGraph, x: np.ndarray, weights: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(out, d_x, d_weights)."""
    x, weights, cotangent = (np.asarray(a, np.float64) for a in (x, weights, cotangent))
    senders, receivers = edges_of(graph)
    out = _sums(weights[:, None] * x[senders], receivers, graph.num_targets)
    d_x = _sums(weights[:, None] * cotangent[receivers], senders, graph.num_sources)
    return out, d_x, (x[senders] * cotangent[receivers]).sum(axis=1)


def mean(graph: SemanticGraph, x: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(out, d_x)."""
    degrees = np.diff(np.asarray(graph.incoming.indptr))
    _, receivers = edges_of(graph)
    return weighted_sum(graph, x, 1.0 / degrees[receivers], cotangent)[:2]


def maximum(graph: SemanticGraph, x: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(out, d_x); ties share."""
    x, cotangent = np.asarray(x, np.float64), np.asarray(cotangent, np.float64)
    senders, receivers = edges_of(graph)
    top = np.full((graph.num_targets, x.shape[1]), -np.inf)
    np.maximum.at(top, receivers, x[senders])
    out = np.where(np.isfinite(top), top, 0.0)
    reaches = (x[senders] == top[receivers]).astype(np.float64)
    shares = cotangent / np.maximum(_sums(reaches, receivers, graph.num_targets), 1.0)
    return out, _sums(reaches * shares[receivers], senders, graph.num_sources)


def _sums(values: np.ndarray, rows: np.ndarray, num_rows: int) -> np.ndarray:
    sums = np.zeros((num_rows, *values.shape[1:]))
    np.add.at(sums, rows, values)
    return sums
