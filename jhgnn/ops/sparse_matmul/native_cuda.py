"""CUDA: rows of the weight summed in registers; the weight's gradient walks the matrix by column."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.native.cuda.rows import Entries, row_sum
from jhgnn.ops.cuda_edges import padded
from jhgnn.ops.table_entries import turned


def sparse_matmul(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`."""
    if matrix.num_values == 0 or weight.size == 0:
        return jnp.zeros((matrix.num_rows, weight.shape[1]), weight.dtype)
    return _multiply(matrix, weight)


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[jax.Array, ...]:
    """See `jhgnn.ops.sparse_matmul`: each matrix is read, and its gradient written, by itself."""
    return tuple(sparse_matmul(matrix, weight) for weight in stack)


@jax.custom_vjp
def _multiply(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    return row_sum(Entries.of(matrix.by_row), weight, weights=matrix.values.astype(jnp.float32))


def _forward(matrix: SparseFeatures, weight: jax.Array) -> tuple[jax.Array, SparseFeatures]:
    return _multiply(matrix, weight), matrix


def _backward(matrix: SparseFeatures, cotangent: jax.Array) -> tuple[None, jax.Array]:
    values = matrix.values_by_column.astype(jnp.float32)
    return None, row_sum(Entries.of(matrix.by_column), cotangent, weights=values)


_multiply.defvjp(_forward, _backward)


def sparse_matmul_of_rows(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    """`sparse_matmul` of sampled rows; backwards their values are sorted by column in the program."""
    if matrix.num_rows == 0 or weight.size == 0:
        return jnp.zeros((matrix.num_rows, weight.shape[1]), weight.dtype)
    return _multiply_rows(matrix, weight)


@jax.custom_vjp
def _multiply_rows(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    counts = jnp.full(matrix.num_rows, matrix.columns.shape[1], jnp.int32)
    values = matrix.values.reshape(-1).astype(jnp.float32)
    return row_sum(padded(matrix.columns, counts), weight, weights=values)


def _rows_forward(matrix: SparseRows, weight: jax.Array) -> tuple[jax.Array, SparseRows]:
    return _multiply_rows(matrix, weight), matrix


def _rows_backward(matrix: SparseRows, cotangent: jax.Array) -> tuple[None, jax.Array]:
    found = turned(matrix.columns, matrix.values != 0, matrix.num_columns)
    values = matrix.values.reshape(-1).astype(jnp.float32)
    values = values.at[found.positions].get(mode="promise_in_bounds", unique_indices=True)
    return None, row_sum(Entries(found.indptr, jnp.zeros(0, jnp.int32), found.rows), cotangent, weights=values)


_multiply_rows.defvjp(_rows_forward, _rows_backward)
