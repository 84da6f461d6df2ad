"""The reference: the textbook edge softmax of segment maxima and sums, compiled by XLA for any platform.

It keeps what the stack of "Characterizing and Understanding HGNN Training on GPUs" keeps: several
`[num_edges, heads]` arrays for the backward pass and the `[num_edges, heads, width]` messages.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import coo_of, max_by_receiver, of_receivers, of_senders, sum_by_receiver, weighed
from jhgnn.random.counter_hash import edge_bits, keep_threshold


def neighbor_attention(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """See `jhgnn.ops.neighbor_attention`."""
    heads = jnp.arange(z.shape[1], dtype=jnp.uint32)
    return _of_heads(graph, z, logit_src, logit_dst, heads, seed, negative_slope, dropout_rate)


def neighbor_attention_head_by_head(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """As `neighbor_attention`; nothing of the edges' size is kept for the backward pass, and one head's at a time is
    there in either pass: `[num_edges, width]` is the largest array.
    """

    @jax.checkpoint
    def one_head(head: tuple[jax.Array, ...]) -> jax.Array:
        z_head, src, dst, number = head
        out = _of_heads(
            graph, z_head[:, None], src[:, None], dst[:, None], number[None], seed, negative_slope, dropout_rate
        )
        return out[:, 0]

    numbers = jnp.arange(z.shape[1], dtype=jnp.uint32)
    out = jax.lax.map(one_head, (z.transpose(1, 0, 2), logit_src.T, logit_dst.T, numbers))
    return out.transpose(1, 0, 2)


def _of_heads(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    heads: jax.Array,
    seed: jax.Array,
    negative_slope: float,
    dropout_rate: float,
) -> jax.Array:
    """Attention of the heads with these numbers, uint32 `[heads]`, which dropout hashes."""
    accumulator = jnp.promote_types(z.dtype, jnp.float32)
    weights = checkpoint_name(
        attention_weights(graph, logit_src.astype(accumulator), logit_dst.astype(accumulator), negative_slope),
        "na_weights",
    )
    if dropout_rate > 0.0:
        kept = _bits(graph, seed, heads) >= jnp.uint32(keep_threshold(dropout_rate))
        weights = jnp.where(kept, weights / (1.0 - dropout_rate), 0.0)
    messages = checkpoint_name(of_senders(graph, z), "na_rows").astype(accumulator) * weights[:, :, None]
    return sum_by_receiver(graph, weighed(graph, messages)).astype(z.dtype)


def attention_weights(
    graph: SemanticGraph, logit_src: jax.Array, logit_dst: jax.Array, negative_slope: float
) -> jax.Array:
    """The softmax over each target's in-edges before dropout, `[num_edges, heads]` in the logits' dtype.

    `logit_src` is `[num_sources, heads]`, `logit_dst` `[num_targets, heads]`; message weights are not in it.
    """
    logits = of_senders(graph, logit_src) + of_receivers(graph, logit_dst)
    scores = checkpoint_name(jax.nn.leaky_relu(logits, negative_slope), "na_scores")
    # The shift cancels in the softmax, so no gradient flows through it.
    exps = jnp.exp(scores - of_receivers(graph, jax.lax.stop_gradient(max_by_receiver(graph, scores))))
    return exps / of_receivers(graph, sum_by_receiver(graph, exps))


def _bits(graph: SemanticGraph, seed: jax.Array, heads: jax.Array) -> jax.Array:
    """The dropout bits of every edge and head, uint32 `[num_edges, heads]`."""
    senders, receivers = graph.incoming.indices, coo_of(graph).receivers
    if graph.sender_ids is not None:
        senders = graph.sender_ids.at[senders].get(mode="promise_in_bounds")
    if graph.receiver_ids is not None:
        receivers = graph.receiver_ids.at[receivers].get(mode="promise_in_bounds")
    return edge_bits(seed, senders.astype(jnp.uint32)[:, None], receivers.astype(jnp.uint32)[:, None], heads[None, :])
