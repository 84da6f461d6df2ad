"""C++ for CPU: rows of the weight summed in registers; the weight's gradient walks the matrix by column."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.native.row_sum import row_sum, row_sums_of_stack, stack_of_row_sums


def sparse_matmul(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`. At run time a malformed matrix is a ValueError."""
    if matrix.num_values == 0 or weight.shape[1] == 0:
        return jnp.zeros((matrix.num_rows, weight.shape[1]), weight.dtype)
    return _multiply(matrix, weight)


@jax.custom_vjp
def _multiply(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    return row_sum(matrix.by_row, weight, weights=matrix.values.astype(jnp.float32))


def _forward(matrix: SparseFeatures, weight: jax.Array) -> tuple[jax.Array, SparseFeatures]:
    return _multiply(matrix, weight), matrix


def _backward(matrix: SparseFeatures, cotangent: jax.Array) -> tuple[None, jax.Array]:
    return None, row_sum(matrix.by_column, cotangent, weights=matrix.values_by_column.astype(jnp.float32))


_multiply.defvjp(_forward, _backward)


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[jax.Array, ...]:
    """See `jhgnn.ops.sparse_matmul`; raises as `sparse_matmul`."""
    if matrix.num_values == 0 or stack.size == 0:
        return (jnp.zeros((matrix.num_rows, stack.shape[2]), stack.dtype),) * stack.shape[0]
    return _multiply_stack(matrix, stack)


@jax.custom_vjp
def _multiply_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(row_sums_of_stack(matrix.by_row, stack, weights=matrix.values.astype(jnp.float32)))


def _forward_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[tuple[jax.Array, ...], SparseFeatures]:
    return _multiply_stack(matrix, stack), matrix


def _backward_stack(matrix: SparseFeatures, cotangents: tuple[jax.Array, ...]) -> tuple[None, jax.Array]:
    return None, stack_of_row_sums(matrix.by_column, cotangents, weights=matrix.values_by_column.astype(jnp.float32))


_multiply_stack.defvjp(_forward_stack, _backward_stack)
