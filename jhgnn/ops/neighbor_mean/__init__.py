"""neighbor_mean: the mean of a target's neighbours; isolated targets give zeros, parallel edges count."""

from collections.abc import Callable

import jax

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_mean import dense, native, segment
from jhgnn.ops.neighbor_mean.choose import choose

__all__ = ["IMPLEMENTATIONS", "VIEWS", "choose", "neighbor_mean"]

Implementation = Callable[[SemanticGraph, jax.Array], jax.Array]

IMPLEMENTATIONS: dict[str, Implementation] = {
    "segment": segment.neighbor_mean,
    "dense": dense.neighbor_mean,
    "native": native.neighbor_mean,
}
VIEWS: dict[str, tuple[str, ...]] = {"segment": ("coo",), "dense": ("adjacency",), "native": ()}
"""The views of `SemanticGraph` that an implementation reads beyond the two compressed directions."""


def neighbor_mean(graph: SemanticGraph, x: jax.Array, *, implementation: str) -> jax.Array:
    """Mean of the senders' rows over each target's in-edges (the NA stage of R-GCN).

    Args:
        graph: placed with the `VIEWS` of the implementation.
        x: `[num_sources, width]`, float32 or bfloat16 (summed in float32).
        implementation: a key of `IMPLEMENTATIONS`; `choose` picks one.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an unknown implementation, shapes that do not fit, a graph placed without a view that it reads, or a
            dtype that `native` does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"neighbor_mean has no implementation {implementation!r}; choose of {sorted(IMPLEMENTATIONS)}")
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_mean of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    return IMPLEMENTATIONS[implementation](graph, x)
