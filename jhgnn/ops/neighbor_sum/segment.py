"""The reference: gather, weight, segment sum; compiled by XLA for any platform."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import of_senders, sum_by_receiver, weighed


def neighbor_sum(graph: SemanticGraph, x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """See `jhgnn.ops.neighbor_sum`. Holds `[num_edges, width]` between its steps."""
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    messages = of_senders(graph, x).astype(accumulator)
    if weights is not None:
        messages = messages * weights.astype(accumulator)[:, None]
    return sum_by_receiver(graph, weighed(graph, messages)).astype(x.dtype)
