"""neighbor_max: the elementwise maximum of a target's neighbours."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.implementation import (
    KERNEL_DTYPES,
    Implementation,
    Op,
    compiled_by_xla,
    fused_on_cpu,
    without_library,
    without_scatters,
)
from jhgnn.ops.neighbor_max import bucketed, native, segment

__all__ = ["OP", "neighbor_max"]

OP = Op(
    "neighbor_max",
    (
        Implementation(
            "native",
            SemanticGraph,
            native.neighbor_max,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation("bucketed", SemanticGraph, bucketed.neighbor_max, without_scatters, views=("buckets",)),
        Implementation("segment", SemanticGraph, segment.neighbor_max, compiled_by_xla, views=("coo",)),
    ),
)


def neighbor_max(graph: SemanticGraph, x: jax.Array, *, implementation: str) -> jax.Array:
    """Elementwise maximum of the senders' rows over each target's in-edges.

    The gradient of a maximum that several edges reach is shared among them equally, so that it does not depend on the
    order of edges.

    Args:
        graph: placed with the views that the implementation reads (`OP.views`).
        x: `[num_sources, width]`, float32 or bfloat16.
        implementation: one of `OP`; `OP.choose` picks one.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an implementation that there is not on this platform, shapes that do not fit, a graph placed without
            a view that it reads, or a dtype that a kernel does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    chosen = OP.resolve(implementation, graph, x)
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_max of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    if graph.num_edges == 0 or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    top: jax.Array = chosen.function(graph, x)
    return top
