"""For GPUs: three loops over degree buckets forward (maxima, sums of weights, weighted rows), one loop backward.

Nothing of the edges' size is kept: residuals are the inputs, the output, the part of it from edges whose logit has the
sign of less weight, and four numbers a target and head. Backward recomputes weights along the transposed edges. A
logit's gradient is d_s = w (<g, z> keep - delta) slope(s), with w the weight, g the cotangent and delta = <g, out>.
Summed over a receiver's edges, d_s without slope(s) is zero, so the sum is that over the edges of one sign, times
(slope - 1) or (1 - slope); the sign of less weight is taken, because the other one's sum cancels against delta.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.bucketed_edges import Edges, backwards_of, forwards_of, has_edges
from jhgnn.ops.bucketed_rows import Entries, max_rows, sum_rows
from jhgnn.random.counter_hash import edge_bits, keep_threshold


def neighbor_attention(
    graph: Edges,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """See `jhgnn.ops.neighbor_attention`."""
    if isinstance(graph, NeighborTable) and dropout_rate > 0.0:
        graph.global_ids()  # or it raises
    if not has_edges(graph) or z.size == 0:
        return jnp.zeros((graph.num_targets, *z.shape[1:]), z.dtype)
    accumulator = jnp.promote_types(z.dtype, jnp.float32)
    logits = logit_src.astype(accumulator), logit_dst.astype(accumulator)
    return _attention(negative_slope, dropout_rate, graph, z, *logits, seed)


class _Stats(NamedTuple):
    """Of each target and head, `[num_targets, heads]`.

    Attributes:
        shift: the largest score, or 0 without edges.
        inverse: of the sum of exponentials.
        minor_is_negative: the sign of the logits with less weight.
        minor_weight: the sum of their weights.
    """

    shift: jax.Array
    inverse: jax.Array
    minor_is_negative: jax.Array
    minor_weight: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(
    slope: float,
    rate: float,
    graph: Edges,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
) -> jax.Array:
    return _weighted_rows(slope, rate, graph, z, logit_src, logit_dst, seed, training=False)[0]


def _forward(
    slope: float,
    rate: float,
    graph: Edges,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
) -> tuple[jax.Array, tuple]:
    out, minor, stats = _weighted_rows(slope, rate, graph, z, logit_src, logit_dst, seed, training=True)
    out = checkpoint_name(out, "na_out")
    minor, stats = jax.tree.map(lambda leaf: checkpoint_name(leaf, "na_stats"), (minor, stats))
    return out, (graph, z, logit_src, logit_dst, seed, out, minor, stats)


def _backward(slope: float, rate: float, residuals: tuple, cotangent: jax.Array) -> tuple:
    graph, z, logit_src, logit_dst, seed, out, minor, stats = residuals
    accumulator = logit_src.dtype
    wide = cotangent.astype(accumulator)
    delta = (wide * out.astype(accumulator)).sum(axis=-1)
    one_sided = (wide * minor).sum(axis=-1) - delta * stats.minor_weight
    d_logit_dst = (1.0 - slope) * jnp.where(stats.minor_is_negative, -one_sided, one_sided)

    def message(own: Entries) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = own.of_rows(logit_src) + own.of_columns(logit_dst)
        scores = jax.nn.leaky_relu(logits, slope)
        weights = jnp.exp(scores - own.of_columns(stats.shift)) * own.of_columns(stats.inverse)
        slopes = jnp.where(logits < 0, jnp.asarray(slope, accumulator), 1.0)
        kept = _kept(rate, graph, own, seed, z.shape[1], senders_are_rows=True)
        used = weights if kept is None else jnp.where(kept, weights / (1.0 - rate), 0.0)
        gradients = own.of_columns(cotangent).astype(accumulator)
        sloped = (used * slopes)[..., None] * gradients
        return used[..., None] * gradients, sloped, weights * slopes * own.of_columns(delta)

    d_z, sloped, deltas = sum_rows(backwards_of(graph), message)
    d_logit_src = (z.astype(accumulator) * sloped).sum(axis=-1) - deltas
    return None, d_z.astype(z.dtype), d_logit_src, d_logit_dst, None


_attention.defvjp(_forward, _backward)


def _weighted_rows(
    slope: float,
    rate: float,
    graph: Edges,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    *,
    training: bool,
) -> tuple[jax.Array, jax.Array | None, _Stats]:
    """(out in z's dtype, the part of it of the minor sign, statistics), the latter two as wide as the logits."""
    rows, accumulator = forwards_of(graph), logit_src.dtype
    top = max_rows(rows, lambda own: own.of_columns(logit_src))
    shift = jnp.where(top > -jnp.inf, jax.nn.leaky_relu(top + logit_dst, slope), 0.0)

    def exponentials(own: Entries) -> tuple[jax.Array, jax.Array]:
        logits = own.of_columns(logit_src) + own.of_rows(logit_dst)
        return jnp.exp(jax.nn.leaky_relu(logits, slope) - own.of_rows(shift)), logits < 0

    def by_sign(own: Entries) -> tuple[jax.Array, jax.Array]:
        exps, negative = exponentials(own)
        return jnp.where(negative, 0.0, exps), jnp.where(negative, exps, 0.0)

    positives, negatives = sum_rows(rows, by_sign)
    total = positives + negatives
    inverse = 1.0 / jnp.where(total > 0, total, 1.0)
    minor_is_negative = negatives <= positives
    stats = _Stats(shift, inverse, minor_is_negative, jnp.minimum(positives, negatives) * inverse)

    def message(own: Entries) -> tuple[jax.Array, ...]:
        exps, negative = exponentials(own)
        kept = _kept(rate, graph, own, seed, z.shape[1], senders_are_rows=False)
        used = exps if kept is None else jnp.where(kept, exps, 0.0)
        senders = own.of_columns(z).astype(accumulator)
        out = used[..., None] * senders
        if not training:
            return (out,)
        return out, jnp.where(negative == own.of_rows(minor_is_negative), used, 0.0)[..., None] * senders

    scale = (inverse / (1.0 - rate))[..., None]
    out, *minor = (sums * scale for sums in sum_rows(rows, message))
    return out.astype(z.dtype), minor[0] if training else None, stats


def _kept(
    rate: float, graph: Edges, own: Entries, seed: jax.Array, heads: int, *, senders_are_rows: bool
) -> jax.Array | None:
    """Which weights dropout keeps, bool `[slots, rows, heads]`; None for all."""
    if rate == 0.0:
        return None
    ids = graph.sender_ids, graph.receiver_ids
    of_rows, of_columns = ids if senders_are_rows else ids[::-1]
    rows = own.row_numbers if of_rows is None else own.of_rows(of_rows)
    columns = own.columns if of_columns is None else own.of_columns(of_columns)
    senders, receivers = (rows, columns) if senders_are_rows else (columns, rows)
    numbers = jnp.arange(heads, dtype=jnp.uint32)[None, None, :]
    bits = edge_bits(seed, senders.astype(jnp.uint32)[..., None], receivers.astype(jnp.uint32)[..., None], numbers)
    return bits >= jnp.uint32(keep_threshold(rate))
