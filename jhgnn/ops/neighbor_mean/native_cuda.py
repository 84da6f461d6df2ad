"""CUDA: rows summed in registers, work split by edges; the backward pass walks the transposed edges."""

import jax
import jax.numpy as jnp

from jhgnn.native.cuda.rows import row_sum
from jhgnn.ops.bucketed_edges import Edges, has_edges
from jhgnn.ops.cuda_edges import backwards_of, degrees_of, forwards_of


def neighbor_mean(graph: Edges, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`."""
    if not has_edges(graph) or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    return _mean(graph, x)


@jax.custom_vjp
def _mean(graph: Edges, x: jax.Array) -> jax.Array:
    return row_sum(forwards_of(graph), x, mean=True)


def _forward(graph: Edges, x: jax.Array) -> tuple[jax.Array, Edges]:
    return _mean(graph, x), graph


def _backward(graph: Edges, cotangent: jax.Array) -> tuple[None, jax.Array]:
    shares = 1.0 / jnp.maximum(degrees_of(graph), 1).astype(jnp.float32)
    return None, row_sum(backwards_of(graph), cotangent, row_scale=shares)


_mean.defvjp(_forward, _backward)
