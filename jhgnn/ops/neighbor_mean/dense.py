"""For dense semantic graphs: the multiplicity matrix times the features, one matmul in each direction."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.segment import in_degrees


def neighbor_mean(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`. Work and memory grow with `num_targets * num_sources`."""
    if graph.adjacency is None:
        raise ValueError(f"semantic graph {graph.name!r} was placed without its 'adjacency' view, which 'dense' reads")
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = graph.adjacency.astype(accumulator) @ x.astype(accumulator)
    degrees = jnp.maximum(in_degrees(graph), 1).astype(sums.dtype)
    return (sums / degrees[:, None]).astype(x.dtype)
