"""neighbor_attention: edge softmax over a target's neighbours, then the weighted sum, for several heads at once."""

import jax

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.attention_options import checked_seed
from jhgnn.ops.implementation import (
    KERNEL_DTYPES,
    Implementation,
    Op,
    Recompute,
    checkpointed,
    compiled_by_xla,
    density_from,
    fused_on_cpu,
    fused_on_gpu,
    not_by_itself,
    without_gpu_library,
    without_library,
    without_scatters,
)
from jhgnn.ops.neighbor_attention import bucketed, dense, fanout, native, native_cuda, segment

__all__ = ["DENSE_FROM", "OP", "neighbor_attention"]

DENSE_FROM = 0.07
"""Density from which the masked dense product beats segment sums where there is no native kernel."""

OP = Op(
    "neighbor_attention",
    (
        Implementation(
            "native",
            SemanticGraph,
            native.neighbor_attention,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=KERNEL_DTYPES,
            recomputing={"everything": checkpointed(native.neighbor_attention)},
            obstacle=without_library,
        ),
        Implementation(
            "native",
            SemanticGraph,
            native_cuda.neighbor_attention,
            fused_on_gpu,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            recomputing={"everything": checkpointed(native_cuda.neighbor_attention)},
            obstacle=without_gpu_library,
        ),
        Implementation(
            "bucketed",
            SemanticGraph,
            bucketed.neighbor_attention,
            without_scatters,
            views=("buckets",),
            recomputing={"everything": checkpointed(bucketed.neighbor_attention)},
        ),
        Implementation(
            "dense", SemanticGraph, dense.neighbor_attention, density_from(DENSE_FROM), views=("adjacency",)
        ),
        Implementation(
            "segment",
            SemanticGraph,
            segment.neighbor_attention,
            compiled_by_xla,
            views=("coo",),
            recomputing=dict.fromkeys(("edges", "everything"), segment.neighbor_attention_head_by_head),
            weighs=True,
        ),
        Implementation(
            "native",
            NeighborTable,
            native.sampled_neighbor_attention,
            lambda table, platform: "sampled neighbours, compressed by the host for the kernels of the CPU",
            platforms=("cpu",),
            views=("edges",),
            dtypes=KERNEL_DTYPES,
            recomputing={"everything": checkpointed(native.sampled_neighbor_attention)},
            obstacle=without_library,
        ),
        Implementation(
            "native",
            NeighborTable,
            native_cuda.neighbor_attention,
            not_by_itself,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            recomputing={"everything": checkpointed(native_cuda.neighbor_attention)},
            obstacle=without_gpu_library,
        ),
        Implementation(
            "bucketed",
            NeighborTable,
            bucketed.neighbor_attention,
            without_scatters,
            recomputing={"everything": checkpointed(bucketed.neighbor_attention)},
        ),
        Implementation(
            "fanout",
            NeighborTable,
            fanout.neighbor_attention,
            lambda table, platform: "sampled neighbours",
            recomputing=dict.fromkeys(("edges", "everything"), checkpointed(fanout.neighbor_attention)),
        ),
    ),
)


def neighbor_attention(
    graph: SemanticGraph | NeighborTable,
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
    (seed, u, v, h), the same in every implementation (`jhgnn.random.counter_hash.edge_bits`), with the graph's own ids
    for u and v where it has some. A sampled table has global ids, so that its edges are dropped where the whole
    graph's are.

    Args:
        graph: a whole graph or a sampled table, with the views that the implementation reads (`OP.views`).
        z: `[num_sources, heads, width]`, float32 or bfloat16 (softmax and sums in float32).
        logit_src: `[num_sources, heads]`, any finite values up to +-1e4 at least.
        logit_dst: `[num_targets, heads]`.
        negative_slope: of the LeakyReLU, in [0, 1].
        dropout_rate: in [0, 1); 0 needs no seed.
        dropout_seed: uint32 scalar.
        implementation: one of `OP`; `OP.choose` picks one.
        recompute: what the backward pass computes again instead of keeping it: `edges`, what has their size, which
            `segment` and `fanout` alone would keep; or `everything` but the arguments.

    Returns:
        `[num_targets, heads, width]` in z's dtype; zeros for targets without in-edges and for padding slots.

    Raises:
        ValueError: an implementation that there is not for this kind of graph and platform, a graph without a view that
            it reads, shapes that do not fit, a dropout rate without a seed, dropout on a table without global ids, or a
            dtype that a kernel does not take.
        RuntimeError: `native` where the package was installed without it.

    Source: Velickovic et al., GAT, eq. 1-6; Wang et al., HAN, eq. 2-6.
    """
    chosen = OP.resolve(implementation, graph, z, logit_src, logit_dst)
    heads = z.shape[1] if z.ndim == 3 else -1
    expected = ((graph.num_sources, heads, z.shape[-1]), (graph.num_sources, heads), (graph.num_targets, heads))
    if (z.shape, logit_src.shape, logit_dst.shape) != expected:
        raise ValueError(
            f"neighbor_attention of {graph.name!r} on {graph.num_sources} -> {graph.num_targets} nodes got z {z.shape},"
            f" logit_src {logit_src.shape}, logit_dst {logit_dst.shape}; need [sources, heads, width],"
            " [sources, heads], [targets, heads]"
        )
    seed = checked_seed(negative_slope, dropout_rate, dropout_seed)
    attend = chosen.at(recompute)
    return attend(graph, z, logit_src, logit_dst, seed, negative_slope=negative_slope, dropout_rate=dropout_rate)
