"""sparse_matmul: constant sparse features times a dense weight; the gradient is the weight's alone."""

import jax

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops.implementation import (
    KERNEL_DTYPES,
    Implementation,
    Op,
    compiled_by_xla,
    fused_on_cpu,
    fused_on_gpu,
    not_by_itself,
    without_gpu_library,
    without_library,
    without_scatters,
)
from jhgnn.ops.sparse_matmul import bucketed, native, native_cuda, rows, segment

__all__ = ["OP", "STACK_OP", "sparse_matmul", "sparse_matmul_stack"]

OP = Op(
    "sparse_matmul",
    (
        Implementation(
            "native",
            SparseFeatures,
            native.sparse_matmul,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation(
            "native",
            SparseFeatures,
            native_cuda.sparse_matmul,
            fused_on_gpu,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation("bucketed", SparseFeatures, bucketed.sparse_matmul, without_scatters, views=("buckets",)),
        Implementation("segment", SparseFeatures, segment.sparse_matmul, compiled_by_xla),
        Implementation(
            "native",
            SparseRows,
            native_cuda.sparse_matmul_of_rows,
            not_by_itself,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation("bucketed", SparseRows, bucketed.sparse_matmul_of_rows, without_scatters),
        Implementation(
            "rows", SparseRows, rows.sparse_matmul, lambda matrix, platform: "padded rows of sampled vertices"
        ),
    ),
)

STACK_OP = Op(
    "sparse_matmul_stack",
    (
        Implementation(
            "native",
            SparseFeatures,
            native.sparse_matmul_stack,
            fused_on_cpu,
            platforms=("cpu",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_library,
        ),
        Implementation(
            "native",
            SparseFeatures,
            native_cuda.sparse_matmul_stack,
            fused_on_gpu,
            platforms=("cuda",),
            dtypes=KERNEL_DTYPES,
            obstacle=without_gpu_library,
        ),
        Implementation("bucketed", SparseFeatures, bucketed.sparse_matmul_stack, without_scatters, views=("buckets",)),
        Implementation("segment", SparseFeatures, segment.sparse_matmul_stack, compiled_by_xla),
    ),
)


def sparse_matmul(matrix: SparseFeatures | SparseRows, weight: jax.Array, *, implementation: str) -> jax.Array:
    """`matrix @ weight`.

    Args:
        matrix: `[num_rows, num_columns]`, constant: it gets no gradient. Values of zero add nothing; `native` leaves
            them out where they are many, so that they do not make a NaN of an infinite weight.
        weight: `[num_columns, width]`, float32 or bfloat16 (summed in float32).
        implementation: one of `OP`; `OP.choose` picks one.

    Returns:
        `[num_rows, width]` in the weight's dtype; zeros for rows without values.

    Raises:
        ValueError: an implementation that there is not for this kind of matrix and platform, shapes that do not fit, or
            a dtype that a kernel does not take.
        RuntimeError: `native` where the package was installed without it.
    """
    chosen = OP.resolve(implementation, matrix, weight)
    _check_shape(matrix, weight, 2)
    product: jax.Array = chosen.function(matrix, weight)
    return product


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array, *, implementation: str) -> tuple[jax.Array, ...]:
    """`matrix @ stack[i]` for each i: as `sparse_matmul`, but neither weights nor products are joined or split.

    `stack` is `[matrices, num_columns, width]`; returns as many `[num_rows, width]`. Of `segment` the promise does not
    hold: it joins and splits them itself.
    """
    chosen = STACK_OP.resolve(implementation, matrix, stack)
    _check_shape(matrix, stack, 3)
    products: tuple[jax.Array, ...] = chosen.function(matrix, stack)
    return products


def _check_shape(matrix: SparseFeatures | SparseRows, weight: jax.Array, ndim: int) -> None:
    if weight.ndim != ndim or weight.shape[-2] != matrix.num_columns:
        raise ValueError(f"sparse_matmul of {matrix.num_columns} columns got a weight of shape {weight.shape}")
