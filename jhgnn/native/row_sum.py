"""Sums over compressed rows by the native kernel: what neighbor_mean, neighbor_sum and sparse_matmul are made of."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.semantic_graph import Csr


def row_sum(
    rows: Csr,
    x: jax.Array,
    *,
    weights: jax.Array | None = None,
    row_scale: jax.Array | None = None,
    mean: bool = False,
) -> jax.Array:
    """For each row i: the sum over its entries e of `weights[e] * row_scale[j] * x[j]`, where j = `rows.indices[e]`.

    Has no gradient of its own. Needs the library (`jhgnn.native.library`).

    Args:
        rows: `indptr` `[num_rows + 1]`, `indices` `[num_entries]`, checked by the kernel.
        x: `[num_columns, width]`, float32 or bfloat16 (summed in float32).
        weights: float32 `[num_entries]`, or None for ones.
        row_scale: float32 `[num_columns]`, or None for ones.
        mean: divide by the number of entries.

    Returns:
        `[num_rows, width]` in x's dtype; zeros for empty rows.
    """
    none = jnp.zeros((0,), jnp.float32)
    shape = jax.ShapeDtypeStruct((rows.indptr.shape[0] - 1, x.shape[1]), x.dtype)
    return jax.ffi.ffi_call("jhgnn_row_sum", shape)(
        rows.indptr,
        rows.indices,
        none if weights is None else weights,
        none if row_scale is None else row_scale,
        x,
        mean=mean,
        weighted=weights is not None,
        scaled=row_scale is not None,
    )


def row_sums_of_stack(rows: Csr, stack: jax.Array, *, weights: jax.Array) -> list[jax.Array]:
    """`row_sum` of each matrix of a stack `[matrices, num_columns, width]`, read in place: `[num_rows, width]` each."""
    shape = jax.ShapeDtypeStruct((rows.indptr.shape[0] - 1, stack.shape[2]), stack.dtype)
    return _row_sums(rows, [stack], [shape] * stack.shape[0], stack.shape[1], weights)


def stack_of_row_sums(rows: Csr, matrices: Sequence[jax.Array], *, weights: jax.Array) -> jax.Array:
    """`row_sum` of each matrix `[num_columns, width]`, written into one stack `[matrices, num_rows, width]`."""
    num_columns, width = matrices[0].shape
    shape = jax.ShapeDtypeStruct((len(matrices), rows.indptr.shape[0] - 1, width), matrices[0].dtype)
    return _row_sums(rows, matrices, [shape], num_columns, weights)[0]


def _row_sums(
    rows: Csr,
    xs: Sequence[jax.Array],
    shapes: Sequence[jax.ShapeDtypeStruct],
    num_columns: int,
    weights: jax.Array,
) -> list[jax.Array]:
    call = jax.ffi.ffi_call("jhgnn_row_sums", list(shapes))
    return list(call(rows.indptr, rows.indices, weights, *xs, columns=np.int64(num_columns)))
