"""The reference: gather, segment sum, divide; compiled by XLA for any platform."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import in_degrees, of_senders, sum_by_receiver, weighed


def neighbor_mean(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`. Holds `[num_edges, width]` between its two steps."""
    messages = of_senders(graph, x).astype(jnp.promote_types(x.dtype, jnp.float32))
    sums = sum_by_receiver(graph, weighed(graph, messages))
    degrees = jnp.maximum(in_degrees(graph), 1).astype(sums.dtype)
    return (sums / degrees[:, None]).astype(x.dtype)
