"""Fused CUDA: one walk over the in-edges forward, one over the out-edges backward, nothing kept per edge.

`native/cuda/attention.h` has the kernels, `bucketed.py` the algebra. Residuals are the inputs, the output, the part of
it from edges whose logit has the sign of less weight, and three numbers a target and head.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from jhgnn.graph.sampled import NeighborTable
from jhgnn.native.cuda import layout_of, tiles_of
from jhgnn.native.cuda.rows import Entries
from jhgnn.ops.attention_options import kernel_attributes
from jhgnn.ops.bucketed_edges import Edges, has_edges
from jhgnn.ops.cuda_edges import backwards_of, forwards_of


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
    ids: tuple[jax.Array | None, jax.Array | None] = (None, None)
    if dropout_rate > 0.0:
        ids = graph.global_ids() if isinstance(graph, NeighborTable) else (graph.sender_ids, graph.receiver_ids)
    if not has_edges(graph) or z.size == 0:
        return jnp.zeros((graph.num_targets, *z.shape[1:]), z.dtype)
    empty = jnp.zeros(0, jnp.int32)
    senders, receivers = (empty if each is None else each for each in ids)
    hashed = _Hashed(jnp.asarray(seed, jnp.uint32).reshape(1), senders, receivers)
    logits = logit_src.astype(jnp.float32), logit_dst.astype(jnp.float32)
    return _attention(negative_slope, dropout_rate, graph, z, *logits, hashed)


class _Hashed(NamedTuple):
    """What dropout hashes: the seed, uint32 `[1]`, and the ids of both sides, or empty ones for vertices' numbers."""

    seed: jax.Array
    sender_ids: jax.Array
    receiver_ids: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(
    slope: float, rate: float, graph: Edges, z: jax.Array, logit_src: jax.Array, logit_dst: jax.Array, hashed: _Hashed
) -> jax.Array:
    return _call_forward(slope, rate, forwards_of(graph), z, logit_src, logit_dst, hashed, training=False)[0]


def _forward(
    slope: float, rate: float, graph: Edges, z: jax.Array, logit_src: jax.Array, logit_dst: jax.Array, hashed: _Hashed
) -> tuple[jax.Array, tuple]:
    out, minor, stats = _call_forward(slope, rate, forwards_of(graph), z, logit_src, logit_dst, hashed, training=True)
    out = checkpoint_name(out, "na_out")
    minor, stats = checkpoint_name(minor, "na_stats"), checkpoint_name(stats, "na_stats")
    return out, (graph, z, logit_src, logit_dst, hashed, out, minor, stats)


def _backward(slope: float, rate: float, residuals: tuple, cotangent: jax.Array) -> tuple:
    graph, z, logit_src, logit_dst, hashed, out, minor, stats = residuals
    num_sources, heads, width = z.shape
    wide = cotangent.astype(jnp.float32)
    log_sum, minor_is_negative, minor_weight = stats
    delta = (wide * out.astype(jnp.float32)).sum(axis=-1)
    one_sided = (wide * minor).sum(axis=-1) - delta * minor_weight
    d_logit_dst = (1.0 - slope) * jnp.where(minor_is_negative > 0, -one_sided, one_sided)
    targets = jnp.stack([logit_dst, log_sum, delta], axis=1)
    rows = backwards_of(graph)
    layout = layout_of(heads * width, width)
    tile, carries = tiles_of("attention", rows.indices.shape[0], layout, 1 + 2 * layout.vector)
    shapes = (
        jax.ShapeDtypeStruct(z.shape, z.dtype),
        jax.ShapeDtypeStruct((num_sources, heads, width // layout.vector), jnp.float32),
        jax.ShapeDtypeStruct((carries,), jnp.float32),
    )
    d_z, d_logit_src, _ = jax.ffi.ffi_call("jhgnn_cuda_attention_backward", shapes)(
        *rows, cotangent, z, logit_src, targets, *hashed, **kernel_attributes(slope, rate), tile=np.int64(tile)
    )
    d_logit_src = d_logit_src.sum(axis=-1)
    return None, d_z, d_logit_src, d_logit_dst, None


_attention.defvjp(_forward, _backward)


def _call_forward(
    slope: float,
    rate: float,
    rows: Entries,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    hashed: _Hashed,
    *,
    training: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(out in z's dtype, the part of it of the minor sign, statistics); without training the latter are empty."""
    num_targets, heads, width = logit_dst.shape[0], *z.shape[1:]
    layout = layout_of(heads * width, width)
    state = 1 + (2 if training else 1) * (1 + layout.vector)
    tile, carries = tiles_of("attention", rows.indices.shape[0], layout, state)
    kept = num_targets if training else 0
    shapes = (
        jax.ShapeDtypeStruct((num_targets, heads, width), z.dtype),
        jax.ShapeDtypeStruct((kept, heads, width), jnp.float32),
        jax.ShapeDtypeStruct((3, kept, heads), jnp.float32),
        jax.ShapeDtypeStruct((carries,), jnp.float32),
    )
    out, minor, stats, _ = jax.ffi.ffi_call("jhgnn_cuda_attention_forward", shapes)(
        *rows, z, logit_src, logit_dst, *hashed, **kernel_attributes(slope, rate), tile=np.int64(tile)
    )
    return out, minor, stats
