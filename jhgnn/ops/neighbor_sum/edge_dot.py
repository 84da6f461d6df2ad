"""The gradient of edge weights: a dot product of both ends' rows for each edge, compiled by XLA."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import coo_of


def edge_dot(graph: SemanticGraph, x: jax.Array, cotangent: jax.Array) -> jax.Array:
    """`x[sender] . cotangent[receiver]` of every edge, `[num_edges]`, float32 at least; reads the `coo` view."""
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    senders = x.at[graph.incoming.indices].get(mode="promise_in_bounds").astype(accumulator)
    receivers = cotangent.at[coo_of(graph).receivers].get(mode="promise_in_bounds", indices_are_sorted=True)
    return (senders * receivers.astype(accumulator)).sum(axis=1)
