"""Products of grouped rows: each row times the matrix of its group, all groups in one product (`RowGroups`).

Gathers have a sum along prebuilt edges as their gradient, so that no direction scatters floats.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.row_groups import TILE, FeatureGroups, RowGroups
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.ops.neighbor_sum import neighbor_sum
from jhgnn.ops.sparse_matmul import sparse_matmul


def grouped_rows(x: jax.Array, groups: RowGroups, *, implementation: str) -> jax.Array:
    """The row that each slot holds, `[tiles, TILE, width]` of `[num_rows, width]`.

    `implementation` is that of `neighbor_sum`, for the gradient.
    """
    _check_rows(x.shape[0], groups)
    gathered = _gathered(implementation, x, groups.rows, groups.into_rows)
    return gathered.reshape(groups.num_tiles, TILE, x.shape[1])


def matrix_of_tiles(stack: jax.Array, groups: RowGroups, *, implementation: str) -> jax.Array:
    """The matrix, or any array, of each tile's group: `[tiles, ...]` of `[matrices, ...]`; else as `grouped_rows`."""
    if stack.shape[0] != groups.num_matrices:
        raise ValueError(f"rows are grouped for {groups.num_matrices} matrices and got {stack.shape[0]}")
    flat = stack.reshape(stack.shape[0], math.prod(stack.shape[1:]))
    gathered = _gathered(implementation, flat, groups.matrix_of_tile, groups.into_matrices)
    return gathered.reshape(groups.num_tiles, *stack.shape[1:])


def grouped_matmul(
    x: jax.Array | SparseFeatures,
    groups: RowGroups,
    stack: jax.Array,
    *,
    implementation: str,
    sparse_implementation: str,
    dtype: jax.typing.DTypeLike,
) -> jax.Array:
    """Each slot's row times its group's matrix, `[slots, out_width]`; what filling slots get is of no meaning.

    Args:
        x: `[num_rows, in_width]`, dense, or sparse where the groups were made for sparse features; as dropout left it.
        groups: by matrix of the stack.
        stack: `[matrices, in_width, out_width]`.
        implementation: of `neighbor_sum`, for gradients.
        sparse_implementation: of `sparse_matmul`.
        dtype: to compute in; sums are in float32 at least.

    Raises:
        ValueError: shapes that do not fit the groups, or sparse features that they were not made for.
    """
    if isinstance(x, SparseFeatures):
        _check_rows(x.num_rows, groups)
        flat = stack.reshape(-1, stack.shape[2]).astype(dtype)
        return sparse_matmul(_features(x, groups), flat, implementation=sparse_implementation)
    rows = grouped_rows(x.astype(dtype), groups, implementation=implementation)
    matrices = matrix_of_tiles(stack.astype(dtype), groups, implementation=implementation)
    accumulator = jnp.promote_types(dtype, jnp.float32)
    product = jnp.einsum("tbi,tio->tbo", rows, matrices, preferred_element_type=accumulator)
    return product.astype(dtype).reshape(groups.num_slots, stack.shape[2])


def _features(x: SparseFeatures, groups: RowGroups) -> SparseFeatures:
    """The slots' features with the values of `x`."""
    own = groups.features
    if not isinstance(own, FeatureGroups):
        for_what = "dense features" if own is None else "combined bases"
        raise ValueError(f"these rows were grouped for {for_what} and got sparse ones")
    return dataclasses.replace(
        own.matrix, values=_values(x, own.entries), values_by_column=_values(x, own.entries_by_column)
    )


def _values(x: SparseFeatures, entries: jax.Array) -> jax.Array:
    return jnp.where(entries >= 0, x.values[jnp.maximum(entries, 0)], 0.0)


def _check_rows(num_rows: int, groups: RowGroups) -> None:
    if num_rows != groups.into_rows.num_targets:
        raise ValueError(f"rows are grouped of a table of {groups.into_rows.num_targets} and got {num_rows}")


def _gather(implementation: str, table: jax.Array, ids: jax.Array, into_table: SemanticGraph) -> jax.Array:
    return table.at[ids].get(mode="promise_in_bounds")


_gathered = jax.custom_vjp(_gather, nondiff_argnums=(0,))


def _forward(
    implementation: str, table: jax.Array, ids: jax.Array, into_table: SemanticGraph
) -> tuple[jax.Array, tuple[jax.Array, SemanticGraph]]:
    return _gather(implementation, table, ids, into_table), (ids, into_table)


def _backward(
    implementation: str, residuals: tuple[jax.Array, SemanticGraph], cotangent: jax.Array
) -> tuple[jax.Array, np.ndarray, None]:
    ids, into_table = residuals
    summed = neighbor_sum(into_table, cotangent, implementation=implementation)
    return summed, np.zeros(ids.shape, jax.dtypes.float0), None


_gathered.defvjp(_forward, _backward)
