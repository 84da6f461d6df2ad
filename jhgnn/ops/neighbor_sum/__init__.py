"""neighbor_sum: the weighted sum of a target's neighbours, with gradients for the rows and for the edge weights."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_mean.choose import choose
from jhgnn.ops.neighbor_sum import native, segment

__all__ = ["IMPLEMENTATIONS", "VIEWS", "choose", "neighbor_sum"]

Implementation = Callable[[SemanticGraph, jax.Array, jax.Array | None], jax.Array]

IMPLEMENTATIONS: dict[str, Implementation] = {"segment": segment.neighbor_sum, "native": native.neighbor_sum}
VIEWS: dict[str, tuple[str, ...]] = {"segment": ("coo",), "native": ("coo",)}
"""The views of `SemanticGraph` that an implementation reads; `native` reads its only with weights."""


def neighbor_sum(
    graph: SemanticGraph, x: jax.Array, weights: jax.Array | None = None, *, implementation: str
) -> jax.Array:
    """Sum over each target's in-edges of the edge's weight times the sender's row.

    Several bases or relations of one type pair are one graph with weights (R-GCN eq. 3).

    Args:
        graph: placed with the `VIEWS` of the implementation.
        x: `[num_sources, width]`, float32 or bfloat16 (summed in float32).
        weights: `[num_edges]` in the order of `graph.incoming`, floating; None for ones.
        implementation: a key of `IMPLEMENTATIONS`.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an unknown implementation, shapes that do not fit, a graph placed without a view that it reads, or a
            dtype that `native` does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"neighbor_sum has no implementation {implementation!r}; choose of {sorted(IMPLEMENTATIONS)}")
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_sum of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    if weights is not None and weights.shape != (graph.num_edges,):
        raise ValueError(f"neighbor_sum of {graph.name!r} got weights {weights.shape}; need [{graph.num_edges}]")
    if graph.num_edges == 0 or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    return IMPLEMENTATIONS[implementation](graph, x, weights)
