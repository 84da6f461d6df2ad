"""Fused C++ for CPU: one walk over the in-edges forward, one over the out-edges backward, nothing kept per edge.

`native/attention.h` has the algebra. Residuals are the inputs, the output, the part of it from edges whose logit has
the sign of less weight, and three numbers a target and head: memory grows with vertices, not edges.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.ops.attention_options import kernel_attributes


def neighbor_attention(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """See `jhgnn.ops.neighbor_attention`. At run time a malformed graph is a ValueError."""
    heads, width = z.shape[1:]
    if graph.num_edges == 0 or heads == 0 or width == 0:
        return jnp.zeros((graph.num_targets, heads, width), z.dtype)
    logits = logit_src.astype(jnp.float32), logit_dst.astype(jnp.float32)
    seed = jnp.asarray(seed, jnp.uint32).reshape(1)
    empty = jnp.zeros(0, jnp.int32)
    ids = [empty if each is None or dropout_rate == 0.0 else each for each in (graph.sender_ids, graph.receiver_ids)]
    hashed = _Hashed(seed, *ids)
    out = _attention(negative_slope, dropout_rate, graph.incoming, graph.outgoing, z, *logits, hashed)
    return out.astype(z.dtype)


def sampled_neighbor_attention(
    table: NeighborTable,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """As `neighbor_attention`, along a sampled table's compressed edges."""
    padded = jnp.concatenate([logit_dst, jnp.zeros((1, logit_dst.shape[1]), logit_dst.dtype)])
    edges = table.compressed()
    if dropout_rate > 0.0:
        sender_ids, receiver_ids = table.global_ids()
        edges = dataclasses.replace(edges, sender_ids=sender_ids, receiver_ids=jnp.append(receiver_ids, 0))
    return neighbor_attention(edges, z, logit_src, padded, seed, negative_slope, dropout_rate)[:-1]


def attention_row_size(heads: int, width: int, factors: int) -> tuple[int, int]:
    """Floats of a packed vertex and of its features alone; as `attention_layout` of `native/handlers.cc`."""
    padded = heads if heads <= 2 else 4 if heads <= 4 else 8 if heads <= 8 else _round_up(heads, 16)
    body = _round_up(padded * width, 16)
    return _round_up(factors * padded, 16) + body, body


class _Hashed(NamedTuple):
    """What dropout hashes: the seed, uint32 `[1]`, and the ids of both sides, or empty ones for vertices' numbers."""

    seed: jax.Array
    sender_ids: jax.Array
    receiver_ids: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(
    slope: float,
    rate: float,
    incoming: Csr,
    outgoing: Csr,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    hashed: _Hashed,
) -> jax.Array:
    return _call_forward(slope, rate, incoming, z, logit_src, logit_dst, hashed, training=False)[0]


def _forward(
    slope: float,
    rate: float,
    incoming: Csr,
    outgoing: Csr,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    hashed: _Hashed,
) -> tuple[jax.Array, tuple]:
    out, out_minor, stats = _call_forward(slope, rate, incoming, z, logit_src, logit_dst, hashed, training=True)
    # Named here as well: the backward pass reads the kernel's own output, and a reshaped copy of it is another tensor.
    out = checkpoint_name(out, "na_out")
    out_minor, stats = checkpoint_name(out_minor, "na_stats"), checkpoint_name(stats, "na_stats")
    return out, (outgoing, z, logit_src, logit_dst, hashed, out, out_minor, stats)


def _backward(slope: float, rate: float, residuals: tuple, cotangent: jax.Array) -> tuple:
    outgoing, z, logit_src, logit_dst, hashed, out, out_minor, stats = residuals
    _, heads, width = z.shape
    row_size, _ = attention_row_size(heads, width, 4)
    shapes = [z.shape, logit_src.shape, logit_dst.shape, (logit_dst.shape[0], row_size)]
    d_z, d_logit_src, d_logit_dst, _ = jax.ffi.ffi_call(
        "jhgnn_attention_backward", [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    )(
        outgoing.indptr,
        outgoing.indices,
        z,
        logit_src,
        logit_dst,
        *hashed,
        out,
        out_minor,
        stats,
        cotangent,
        **kernel_attributes(slope, rate),
    )
    return None, None, d_z.astype(z.dtype), d_logit_src, d_logit_dst, None


_attention.defvjp(_forward, _backward)


def _call_forward(
    slope: float,
    rate: float,
    incoming: Csr,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    hashed: _Hashed,
    *,
    training: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(out, out_minor, stats), float32; without training out_minor is empty."""
    (num_sources, heads, width), num_targets = z.shape, logit_dst.shape[0]
    row_size, body = attention_row_size(heads, width, 3)
    shapes = [
        (num_targets, heads, width),
        (num_targets if training else 0, body),
        (num_targets, 3, heads),
        (num_sources, row_size),
    ]
    out, out_minor, stats, _ = jax.ffi.ffi_call(
        "jhgnn_attention_forward", [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    )(incoming.indptr, incoming.indices, z, logit_src, logit_dst, *hashed, **kernel_attributes(slope, rate))
    return out, out_minor, stats


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
