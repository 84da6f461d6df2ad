"""The reference: gather and segment maximum; backward finds the edges that reach it again."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import coo_of, in_degrees, max_by_receiver, of_receivers, of_senders, sum_by_receiver


@jax.custom_vjp
def neighbor_max(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_max`. Holds `[num_edges, width]` between its steps."""
    top = max_by_receiver(graph, of_senders(graph, x))
    return jnp.where((in_degrees(graph) > 0)[:, None], top, 0.0).astype(x.dtype)


def _forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, tuple]:
    out = neighbor_max(graph, x)
    return out, (graph, x, out)


def _backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array]:
    graph, x, out = residuals
    coo, accumulator = coo_of(graph), jnp.promote_types(x.dtype, jnp.float32)
    reaches = (of_senders(graph, x) == of_receivers(graph, out)).astype(accumulator)
    shares = cotangent.astype(accumulator) / jnp.maximum(sum_by_receiver(graph, reaches), 1.0)
    by_sender = (reaches * of_receivers(graph, shares)).at[coo.incoming_position].get(mode="promise_in_bounds")
    sums = jax.ops.segment_sum(by_sender, coo.senders, graph.num_sources, indices_are_sorted=True)
    return None, sums.astype(x.dtype)


neighbor_max.defvjp(_forward, _backward)
