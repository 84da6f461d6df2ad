"""For sampled blocks: edge softmax along the columns of a neighbour table; gathers and masked reductions only.

On the CPU, where the table comes with its compressed edges, the native kernel walks them. Either way dropout hashes an
edge's global ids, so that a sampled edge is dropped where the full graph's is.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.counter_hash import edge_bits, keep_threshold
from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.neighbor_attention import native
from jhgnn.ops.neighbor_table import weighted_sum


def neighbor_attention(
    table: NeighborTable,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
    recompute: str = "nothing",
) -> jax.Array:
    """Attention over each target's sampled neighbours, as `jhgnn.ops.neighbor_attention` has it over all of them.

    Which weights are dropped is hashed from global ids, so that a sampled edge is dropped where the full graph's is.

    Args:
        table: of `SampledBlocks.table`, with the global ids of both sides, where there is dropout.
        z: `[table.num_sources, heads, width]`, float32 or bfloat16 (softmax and sums in float32).
        logit_src: `[table.num_sources, heads]`.
        logit_dst: `[table.num_targets, heads]`.
        seed: uint32 scalar, of the dropout.
        negative_slope: of the LeakyReLU.
        dropout_rate: in [0, 1).
        recompute: `nothing`, `edges` (no `[table.num_targets, table.width, heads]` array is kept for the backward pass;
            the native kernel never does) or `everything`.

    Returns:
        `[table.num_targets, heads, width]` in z's dtype; zeros for targets without neighbours and for padding slots.

    Raises:
        ValueError: shapes that do not fit, or dropout on a table without global ids.
    """
    heads = z.shape[1] if z.ndim == 3 else -1
    expected = ((table.num_sources, heads, z.shape[-1]), (table.num_sources, heads), (table.num_targets, heads))
    if (z.shape, logit_src.shape, logit_dst.shape) != expected:
        raise ValueError(
            f"neighbor_attention of {table.name!r} on {table.num_sources} -> {table.num_targets} slots got z {z.shape},"
            f" logit_src {logit_src.shape}, logit_dst {logit_dst.shape}; need [sources, heads, width],"
            " [sources, heads], [targets, heads]"
        )
    attend = functools.partial(_attend, table, negative_slope=negative_slope, dropout_rate=dropout_rate)
    wrapped = recompute == "everything" or (recompute == "edges" and table.edges is None)
    return (jax.checkpoint(attend) if wrapped else attend)(z, logit_src, logit_dst, seed)


def _attend(
    table: NeighborTable,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    *,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    heads = z.shape[1]
    if table.edges is not None:
        padded = jnp.concatenate([logit_dst, jnp.zeros((1, heads), logit_dst.dtype)])
        edges = table.edges
        if dropout_rate > 0.0:
            sender_ids, receiver_ids = _global_ids(table)
            edges = dataclasses.replace(edges, sender_ids=sender_ids, receiver_ids=jnp.append(receiver_ids, 0))
        return native.neighbor_attention(edges, z, logit_src, padded, seed, negative_slope, dropout_rate)[:-1]
    accumulator = jnp.promote_types(z.dtype, jnp.float32)
    mask = table.mask[:, :, None]
    logits = _of_senders(table, logit_src.astype(accumulator)) + logit_dst.astype(accumulator)[:, None, :]
    scores = checkpoint_name(jax.nn.leaky_relu(logits, negative_slope), "na_scores")
    # The shift cancels in the softmax, so no gradient flows through it. Masked before exp: padding columns repeat the
    # row of slot 0, whose exp may overflow, and 0 * inf poisons the gradient.
    shift = jax.lax.stop_gradient(jnp.max(scores, axis=1, keepdims=True, where=mask, initial=-jnp.inf))
    shift = jnp.where(jnp.isfinite(shift), shift, 0.0)
    exps = jnp.exp(jnp.where(mask, scores - shift, -jnp.inf))
    total = jnp.sum(exps, axis=1, keepdims=True)
    weights = checkpoint_name(exps / jnp.where(total > 0, total, 1.0), "na_weights")
    if dropout_rate > 0.0:
        kept = _bits(table, seed, heads) >= jnp.uint32(keep_threshold(dropout_rate))
        weights = jnp.where(kept, weights / (1.0 - dropout_rate), 0.0)
    return weighted_sum(table.senders, weights, z).astype(z.dtype)


def _of_senders(table: NeighborTable, values: jax.Array) -> jax.Array:
    return values.at[table.senders].get(mode="promise_in_bounds")


def _bits(table: NeighborTable, seed: jax.Array, heads: int) -> jax.Array:
    """The dropout bits of every entry and head, uint32 `[num_targets, width, heads]`."""
    sender_ids, receiver_ids = _global_ids(table)
    senders = _of_senders(table, sender_ids.astype(jnp.uint32))[:, :, None]
    receivers = receiver_ids.astype(jnp.uint32)[:, None, None]
    return edge_bits(seed, senders, receivers, jnp.arange(heads, dtype=jnp.uint32)[None, None, :])


def _global_ids(table: NeighborTable) -> tuple[jax.Array, jax.Array]:
    if table.sender_ids is None or table.receiver_ids is None:
        raise ValueError(f"dropout on {table.name!r} reads global ids; take the table from SampledBlocks.table")
    return table.sender_ids, table.receiver_ids
