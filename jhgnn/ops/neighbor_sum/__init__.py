"""neighbor_sum: the weighted sum of a target's neighbours, with gradients for the rows and for the edge weights."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.implementation import (
    KERNEL_DTYPES,
    Implementation,
    Op,
    compiled_by_xla,
    fused_on_cpu,
    not_by_itself,
    without_gpu_library,
    without_library,
    without_scatters,
)
from jhgnn.ops.neighbor_sum import bucketed, native, native_cuda, segment

__all__ = ["OP", "neighbor_sum"]

OP = Op(
    "neighbor_sum",
    (
        Implementation(
            "native",
            SemanticGraph,
            native.neighbor_sum,
            fused_on_cpu,
            platforms=("cpu",),
            views=("coo",),  # with weights only
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation(
            "native",
            SemanticGraph,
            native_cuda.neighbor_sum,
            not_by_itself,
            platforms=("cuda",),
            views=("coo",),  # with weights only
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation(
            "bucketed",
            SemanticGraph,
            bucketed.neighbor_sum,
            without_scatters,
            views=("buckets", "coo"),  # the latter with weights only
        ),
        Implementation("segment", SemanticGraph, segment.neighbor_sum, compiled_by_xla, views=("coo",), weighs=True),
    ),
)


def neighbor_sum(
    graph: SemanticGraph, x: jax.Array, weights: jax.Array | None = None, *, implementation: str
) -> jax.Array:
    """Sum over each target's in-edges of the edge's weight times the sender's row.

    Several bases or relations of one type pair are one graph with weights (R-GCN eq. 3).

    Args:
        graph: placed with the views that the implementation reads (`OP.views`).
        x: `[num_sources, width]`, float32 or bfloat16 (summed in float32).
        weights: `[num_edges]` in the order of `graph.incoming`, floating; None for ones.
        implementation: one of `OP`; `OP.choose` picks one.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an implementation that there is not on this platform, shapes that do not fit, a graph placed without
            a view that it reads, or a dtype that a kernel does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    chosen = OP.resolve(implementation, graph, x, *(() if weights is None else (weights,)))
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_sum of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    if weights is not None and weights.shape != (graph.num_edges,):
        raise ValueError(f"neighbor_sum of {graph.name!r} got weights {weights.shape}; need [{graph.num_edges}]")
    if graph.num_edges == 0 or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    sums: jax.Array = chosen.function(graph, x, weights)
    return sums
