"""CUDA: rows summed in registers; backward, the transposed edges for x and a dot product an edge for weights."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.native.cuda.rows import row_sum
from jhgnn.ops.cuda_edges import backwards_of, forwards_of
from jhgnn.ops.neighbor_sum.edge_dot import edge_dot
from jhgnn.ops.segment import coo_of


def neighbor_sum(graph: SemanticGraph, x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """See `jhgnn.ops.neighbor_sum`."""
    if weights is None:
        return _plain(graph, x)
    coo_of(graph)
    return _weighted(graph, x, weights.astype(jnp.float32))


@jax.custom_vjp
def _plain(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    return row_sum(forwards_of(graph), x)


def _plain_forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, SemanticGraph]:
    return _plain(graph, x), graph


def _plain_backward(graph: SemanticGraph, cotangent: jax.Array) -> tuple[None, jax.Array]:
    return None, row_sum(backwards_of(graph), cotangent)


_plain.defvjp(_plain_forward, _plain_backward)


@jax.custom_vjp
def _weighted(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> jax.Array:
    return row_sum(forwards_of(graph), x, weights=weights)


def _weighted_forward(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple]:
    return _weighted(graph, x, weights), (graph, x, weights)


def _weighted_backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    graph, x, weights = residuals
    by_sender = weights.at[coo_of(graph).incoming_position].get(mode="promise_in_bounds", unique_indices=True)
    return None, row_sum(backwards_of(graph), cotangent, weights=by_sender), edge_dot(graph, x, cotangent)


_weighted.defvjp(_weighted_forward, _weighted_backward)
