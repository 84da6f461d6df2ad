"""For GPUs: loops over degree buckets in both directions, compiled by XLA; no scatter and no array of messages."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.bucketed_edges import Edges, backwards_of, forwards_of, has_edges
from jhgnn.ops.bucketed_rows import sum_rows
from jhgnn.ops.segment import in_degrees


def neighbor_mean(graph: Edges, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`."""
    if not has_edges(graph):
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    return _mean(graph, x)


@jax.custom_vjp
def _mean(graph: Edges, x: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = sum_rows(forwards_of(graph), lambda own: own.of_columns(x).astype(accumulator))
    return (sums / _degrees(graph, accumulator)).astype(x.dtype)


def _forward(graph: Edges, x: jax.Array) -> tuple[jax.Array, Edges]:
    return _mean(graph, x), graph


def _backward(graph: Edges, cotangent: jax.Array) -> tuple[None, jax.Array]:
    accumulator = jnp.promote_types(cotangent.dtype, jnp.float32)
    shares = cotangent.astype(accumulator) / _degrees(graph, accumulator)
    return None, sum_rows(backwards_of(graph), lambda own: own.of_columns(shares)).astype(cotangent.dtype)


def _degrees(graph: Edges, dtype: jnp.dtype) -> jax.Array:
    """At least 1, `[num_targets, 1]`."""
    degrees = in_degrees(graph) if isinstance(graph, SemanticGraph) else graph.num_neighbors
    return jnp.maximum(degrees, 1).astype(dtype)[:, None]


_mean.defvjp(_forward, _backward)
