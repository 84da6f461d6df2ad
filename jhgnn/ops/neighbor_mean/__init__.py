"""neighbor_mean: the mean of a target's neighbours; isolated targets give zeros, parallel edges count."""

import jax

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.implementation import (
    KERNEL_DTYPES,
    Implementation,
    Op,
    compiled_by_xla,
    density_from,
    fused_on_cpu,
    not_by_itself,
    without_gpu_library,
    without_library,
    without_scatters,
)
from jhgnn.ops.neighbor_mean import bucketed, dense, fanout, native, native_cuda, segment

__all__ = ["DENSE_FROM", "OP", "neighbor_mean"]

DENSE_FROM = 0.03
"""Density from which the dense product beats segment sums where there is no native kernel."""

KERNEL_FROM_EDGES = 131_072
"""Edges from which a GPU's kernel is taken. On an H200 it took a third of the loops' time with 7 million edges, and
more than theirs with at most 86 thousand; that the two meet here is an estimate (docs/gpu.md)."""


def _many_edges(graph: SemanticGraph | None, platform: str) -> str | None:
    if graph is None or graph.num_edges < KERNEL_FROM_EDGES:
        return None
    return f"one fused walk over {graph.num_edges:,} edges"


OP = Op(
    "neighbor_mean",
    (
        Implementation(
            "native",
            SemanticGraph,
            native.neighbor_mean,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation(
            "native",
            SemanticGraph,
            native_cuda.neighbor_mean,
            _many_edges,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation("bucketed", SemanticGraph, bucketed.neighbor_mean, without_scatters, views=("buckets",)),
        Implementation("dense", SemanticGraph, dense.neighbor_mean, density_from(DENSE_FROM), views=("adjacency",)),
        Implementation("segment", SemanticGraph, segment.neighbor_mean, compiled_by_xla, views=("coo",), weighs=True),
        Implementation(
            "native",
            NeighborTable,
            native.sampled_neighbor_mean,
            lambda table, platform: "sampled neighbours, compressed by the host for the kernels of the CPU",
            platforms=("cpu",),
            views=("edges",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation(
            "native",
            NeighborTable,
            native_cuda.neighbor_mean,
            not_by_itself,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation("bucketed", NeighborTable, bucketed.neighbor_mean, without_scatters),
        Implementation("fanout", NeighborTable, fanout.neighbor_mean, lambda table, platform: "sampled neighbours"),
    ),
)


def neighbor_mean(graph: SemanticGraph | NeighborTable, x: jax.Array, *, implementation: str) -> jax.Array:
    """Mean of the senders' rows over each target's in-edges (the NA stage of R-GCN).

    Args:
        graph: a whole graph or a sampled table, with the views that the implementation reads (`OP.views`).
        x: `[num_sources, width]`, float32 or bfloat16 (summed in float32).
        implementation: one of `OP`; `OP.choose` picks one.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without in-edges and for padding slots.

    Raises:
        ValueError: an implementation that there is not for this kind of graph and platform, shapes that do not fit, a
            graph without a view that it reads, or a dtype that a kernel does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    chosen = OP.resolve(implementation, graph, x)
    if x.ndim != 2 or x.shape[0] != graph.num_sources:
        raise ValueError(f"neighbor_mean of {graph.name!r} got x {x.shape}; need [{graph.num_sources}, width]")
    mean: jax.Array = chosen.function(graph, x)
    return mean
