"""For GPUs: loops over degree buckets; backward, the transposed edges for x and a dot product an edge for weights."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.bucketed_edges import backwards_of, forwards_of
from jhgnn.ops.bucketed_rows import sum_rows
from jhgnn.ops.neighbor_sum.edge_dot import edge_dot
from jhgnn.ops.segment import coo_of


def neighbor_sum(graph: SemanticGraph, x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """See `jhgnn.ops.neighbor_sum`."""
    if weights is None:
        return _plain(graph, x)
    return _weighted(graph, x, weights)


@jax.custom_vjp
def _plain(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    return sum_rows(forwards_of(graph), lambda own: own.of_columns(x).astype(accumulator)).astype(x.dtype)


def _plain_forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, SemanticGraph]:
    return _plain(graph, x), graph


def _plain_backward(graph: SemanticGraph, cotangent: jax.Array) -> tuple[None, jax.Array]:
    accumulator = jnp.promote_types(cotangent.dtype, jnp.float32)
    sums = sum_rows(backwards_of(graph), lambda own: own.of_columns(cotangent).astype(accumulator))
    return None, sums.astype(cotangent.dtype)


_plain.defvjp(_plain_forward, _plain_backward)


@jax.custom_vjp
def _weighted(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = sum_rows(
        forwards_of(graph),
        lambda own: own.of_entries(weights).astype(accumulator)[..., None] * own.of_columns(x).astype(accumulator),
    )
    return sums.astype(x.dtype)


def _weighted_forward(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple]:
    return _weighted(graph, x, weights), (graph, x, weights)


def _weighted_backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    graph, x, weights = residuals
    coo, accumulator = coo_of(graph), jnp.promote_types(x.dtype, jnp.float32)
    by_sender = weights.at[coo.incoming_position].get(mode="promise_in_bounds", unique_indices=True)
    wide = cotangent.astype(accumulator)
    sums = sum_rows(
        backwards_of(graph),
        lambda own: own.of_entries(by_sender).astype(accumulator)[..., None] * own.of_columns(wide),
    )
    return None, sums.astype(x.dtype), edge_dot(graph, x, wide).astype(weights.dtype)


_weighted.defvjp(_weighted_forward, _weighted_backward)
