"""The reference: the textbook edge softmax of segment maxima and sums, compiled by XLA for any platform.

It keeps what the characterization paper's stack keeps: several `[num_edges, heads]` arrays for the backward pass and
the `[num_edges, heads, width]` messages.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jhgnn.counter_hash import edge_bits, keep_threshold
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import coo_of, max_by_receiver, of_receivers, of_senders, sum_by_receiver


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
    accumulator = jnp.promote_types(z.dtype, jnp.float32)
    logits = of_senders(graph, logit_src.astype(accumulator)) + of_receivers(graph, logit_dst.astype(accumulator))
    scores = checkpoint_name(jax.nn.leaky_relu(logits, negative_slope), "na_scores")
    # The shift cancels in the softmax, so no gradient flows through it.
    exps = jnp.exp(scores - of_receivers(graph, jax.lax.stop_gradient(max_by_receiver(graph, scores))))
    weights = checkpoint_name(exps / of_receivers(graph, sum_by_receiver(graph, exps)), "na_weights")
    if dropout_rate > 0.0:
        kept = _bits(graph, seed, z.shape[1]) >= jnp.uint32(keep_threshold(dropout_rate))
        weights = jnp.where(kept, weights / (1.0 - dropout_rate), 0.0)
    messages = of_senders(graph, z).astype(accumulator) * weights[:, :, None]
    return sum_by_receiver(graph, messages).astype(z.dtype)


def _bits(graph: SemanticGraph, seed: jax.Array, heads: int) -> jax.Array:
    """The dropout bits of every edge and head, uint32 `[num_edges, heads]`."""
    senders = graph.incoming.indices.astype(jnp.uint32)[:, None]
    receivers = coo_of(graph).receivers.astype(jnp.uint32)[:, None]
    return edge_bits(seed, senders, receivers, jnp.arange(heads, dtype=jnp.uint32)[None, :])
