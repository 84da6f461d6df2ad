"""C++ for CPU: maxima and how many edges reach them; backward compares along the transposed edges."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph


def neighbor_max(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_max`. At run time a malformed graph is a ValueError."""
    return _max(graph, x).astype(x.dtype)


@jax.custom_vjp
def _max(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    return _forward(graph, x)[0]


def _forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, tuple]:
    shape = jax.ShapeDtypeStruct((graph.num_targets, x.shape[1]), jnp.float32)
    out, counts = jax.ffi.ffi_call("jhgnn_row_max", (shape, shape))(graph.incoming.indptr, graph.incoming.indices, x)
    return out, (graph, x, out, counts)


def _backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array]:
    graph, x, out, counts = residuals
    d_x = jax.ffi.ffi_call("jhgnn_row_max_backward", jax.ShapeDtypeStruct(x.shape, jnp.float32))(
        graph.outgoing.indptr, graph.outgoing.indices, x, out, cotangent / jnp.maximum(counts, 1.0)
    )
    return None, d_x.astype(x.dtype)


_max.defvjp(_forward, _backward)
