"""For sampled blocks: edge softmax along the columns of a neighbour table; gathers and masked reductions only."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.neighbor_table import weighted_sum
from jhgnn.random.counter_hash import edge_bits, keep_threshold


def neighbor_attention(
    table: NeighborTable,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """See `jhgnn.ops.neighbor_attention`. Keeps `[num_targets, width, heads]` weights for the backward pass."""
    heads = z.shape[1]
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
    sender_ids, receiver_ids = table.global_ids()
    senders = _of_senders(table, sender_ids.astype(jnp.uint32))[:, :, None]
    receivers = receiver_ids.astype(jnp.uint32)[:, None, None]
    return edge_bits(seed, senders, receivers, jnp.arange(heads, dtype=jnp.uint32)[None, None, :])
