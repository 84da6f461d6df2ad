"""For GPUs: loops over degree buckets; backward finds the edges that reach the maximum again."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.bucketed_edges import backwards_of, forwards_of
from jhgnn.ops.bucketed_rows import max_rows, sum_rows
from jhgnn.ops.segment import in_degrees


@jax.custom_vjp
def neighbor_max(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_max`."""
    top = max_rows(forwards_of(graph), lambda own: own.of_columns(x))
    return jnp.where((in_degrees(graph) > 0)[:, None], top, 0)


def _forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, tuple]:
    out = neighbor_max(graph, x)
    return out, (graph, x, out)


def _backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array]:
    graph, x, out = residuals
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    reaching = sum_rows(
        forwards_of(graph),
        lambda own: (own.of_columns(x) == own.of_rows(out)).astype(accumulator),
    )
    shares = cotangent.astype(accumulator) / jnp.maximum(reaching, 1.0)
    sums = sum_rows(
        backwards_of(graph),
        lambda own: jnp.where(own.of_rows(x) == own.of_columns(out), own.of_columns(shares), 0.0),
    )
    return None, sums.astype(x.dtype)


neighbor_max.defvjp(_forward, _backward)
