"""neighbor_max: the elementwise maximum of a target's neighbours."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_max import native, segment
from jhgnn.ops.neighbor_mean.choose import choose

__all__ = ["IMPLEMENTATIONS", "VIEWS", "choose", "neighbor_max"]

Implementation = Callable[[SemanticGraph, jax.Array], jax.Array]

IMPLEMENTATIONS: dict[str, Implementation] = {"segment": segment.neighbor_max, "native": native.neighbor_max}
VIEWS: dict[str, tuple[str, ...]] = {"segment": ("coo",), "native": ()}
"""The views of `SemanticGraph` that an implementation reads beyond the two compressed directions."""


def neighbor_max(graph: SemanticGraph, x: jax.Array, *, implementation: str) -> jax.Array:
    """Elementwise maximum of the senders' rows over each target's in-edges.

    The gradient of a maximum that several edges reach is shared among them equally, so that it does not depend on the
    order of edges.

    Args:
        graph: placed with the `VIEWS` of the implementation.
        x: `[num_sources, width]`, float32 or bfloat16.
        implementation: a key of `IMPLEMENTATIONS`.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an unknown implementation, shapes that do not fit, a graph placed without a view that it reads, or a
            dtype that `native` does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"neighbor_max has no implementation {implementation!r}; choose of {sorted(IMPLEMENTATIONS)}")
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_max of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    if graph.num_edges == 0 or x.shape[1] == 0:
        return jnp.zeros((graph.num_targets, x.shape[1]), x.dtype)
    return IMPLEMENTATIONS[implementation](graph, x)
