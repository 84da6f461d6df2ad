"""C++ for CPU: rows summed in registers, work split by edges; the backward pass walks the transposed edges."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.native.row_sum import row_sum


def neighbor_mean(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`. At run time a malformed graph is a ValueError."""
    if graph.num_edges == 0 or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    return _mean(graph, x)


def sampled_neighbor_mean(table: NeighborTable, x: jax.Array) -> jax.Array:
    """As `neighbor_mean`, along a sampled table's compressed edges."""
    return neighbor_mean(table.compressed(), x)[: table.num_targets]


@jax.custom_vjp
def _mean(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    return row_sum(graph.incoming, x, mean=True)


def _forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, SemanticGraph]:
    return _mean(graph, x), graph


def _backward(graph: SemanticGraph, cotangent: jax.Array) -> tuple[None, jax.Array]:
    # Divided as the rows are read: a scaled copy of the cotangent would be written and read once more.
    degrees = jnp.maximum(jnp.diff(graph.incoming.indptr), 1)
    return None, row_sum(graph.outgoing, cotangent, row_scale=1.0 / degrees.astype(jnp.float32))


_mean.defvjp(_forward, _backward)
