"""neighbor_attention: edge softmax over a target's neighbours, then the weighted sum, for several heads at once."""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.neighbor_attention import dense, native, segment
from jhgnn.ops.neighbor_attention.choose import choose

__all__ = ["IMPLEMENTATIONS", "VIEWS", "Recompute", "choose", "neighbor_attention"]

Implementation = Callable[..., jax.Array]
Recompute = Literal["nothing", "edges", "everything"]

IMPLEMENTATIONS: dict[str, Implementation] = {
    "segment": segment.neighbor_attention,
    "dense": dense.neighbor_attention,
    "native": native.neighbor_attention,
}
VIEWS: dict[str, tuple[str, ...]] = {"segment": ("coo",), "dense": ("adjacency",), "native": ()}
"""The views of `SemanticGraph` that an implementation reads beyond the two compressed directions."""


def neighbor_attention(
    graph: SemanticGraph,
    z: jax.Array,
    logit_src: jax.Array,
    logit_dst: jax.Array,
    *,
    negative_slope: float = 0.2,
    dropout_rate: float = 0.0,
    dropout_seed: jax.Array | None = None,
    implementation: str,
    recompute: Recompute = "nothing",
) -> jax.Array:
    """Attention-weighted sum of the senders' rows over each target's in-edges (the NA stage of HAN and R-GAT).

    For edge u -> v and head h: weight = softmax over v's in-edges of LeakyReLU(logit_src[u, h] + logit_dst[v, h]).
    Weights are dropped after the softmax and the kept ones scaled by 1 / (1 - rate); which are dropped is a hash of
    (seed, u, v, h), the same in every implementation (`jhgnn.counter_hash.edge_bits`), with the graph's own ids for u
    and v where it has some.

    Args:
        graph: placed with the `VIEWS` of the implementation.
        z: `[num_sources, heads, width]`, float32 or bfloat16 (softmax and sums in float32).
        logit_src: `[num_sources, heads]`, any finite values up to +-1e4 at least.
        logit_dst: `[num_targets, heads]`.
        negative_slope: of the LeakyReLU, in [0, 1].
        dropout_rate: in [0, 1); 0 needs no seed.
        dropout_seed: uint32 scalar.
        implementation: a key of `IMPLEMENTATIONS`; `choose` picks one.
        recompute: what the backward pass computes again instead of keeping it: `edges`, what has their size, which
            `dense` and `native` never keep; or `everything` but the arguments.

    Returns:
        `[num_targets, heads, width]` in z's dtype; zeros for targets without in-edges.

    Raises:
        ValueError: an unknown implementation, a graph placed without a view that it reads, shapes that do not fit,
            a dropout rate without a seed, or a dtype that `native` does not take.
        RuntimeError: `native` where the package was installed without it.

    Source: Velickovic et al., GAT, eq. 1-6; Wang et al., HAN, eq. 2-6.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"neighbor_attention has no implementation {implementation!r}; choose of {sorted(IMPLEMENTATIONS)}"
        )
    heads = z.shape[1] if z.ndim == 3 else -1
    expected = ((graph.num_sources, heads, z.shape[-1]), (graph.num_sources, heads), (graph.num_targets, heads))
    if (z.shape, logit_src.shape, logit_dst.shape) != expected:
        raise ValueError(
            f"neighbor_attention on {graph.num_sources} -> {graph.num_targets} nodes got z {z.shape}, logit_src"
            f" {logit_src.shape}, logit_dst {logit_dst.shape}; need [sources, heads, width], [sources, heads],"
            " [targets, heads]"
        )
    if not 0.0 <= dropout_rate < 1.0 or not 0.0 <= negative_slope <= 1.0:
        raise ValueError(f"need dropout_rate in [0, 1) and negative_slope in [0, 1]: {dropout_rate}, {negative_slope}")
    if dropout_rate > 0.0 and dropout_seed is None:
        raise ValueError(f"dropout_rate {dropout_rate} needs a dropout_seed")
    seed = jnp.zeros((), jnp.uint32) if dropout_seed is None else dropout_seed
    attend: Implementation = functools.partial(
        IMPLEMENTATIONS[implementation], negative_slope=negative_slope, dropout_rate=dropout_rate
    )
    if implementation == "segment" and recompute != "nothing":
        attend = functools.partial(attend, recompute=True)
    elif implementation == "native" and recompute == "everything":
        attend = jax.checkpoint(attend)
    return attend(graph, z, logit_src, logit_dst, seed)
