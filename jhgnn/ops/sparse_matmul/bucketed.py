"""For GPUs: loops over rows, and for the weight's gradient over columns, in buckets by their number of values."""

import jax
import jax.numpy as jnp

from jhgnn.graph.degree_buckets import BothBuckets
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops.bucketed_edges import padded_rows, turned_rows
from jhgnn.ops.bucketed_rows import Rows, sum_rows


def sparse_matmul(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`."""
    return sparse_matmul_stack(matrix, weight[None])[0]


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[jax.Array, ...]:
    """See `jhgnn.ops.sparse_matmul`: one loop for all matrices."""
    if matrix.num_values == 0:
        return (jnp.zeros((matrix.num_rows, stack.shape[2]), stack.dtype),) * stack.shape[0]
    return _multiply(matrix, tuple(stack))


@jax.custom_vjp
def _multiply(matrix: SparseFeatures, weights: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return _products(Rows(_buckets(matrix).forwards, matrix.by_row.indices), matrix.values, weights)


def _forward(matrix: SparseFeatures, weights: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], SparseFeatures]:
    return _multiply(matrix, weights), matrix


def _backward(matrix: SparseFeatures, cotangents: tuple[jax.Array, ...]) -> tuple[None, tuple[jax.Array, ...]]:
    columns = Rows(_buckets(matrix).backwards, matrix.by_column.indices)
    return None, _products(columns, matrix.values_by_column, cotangents)


_multiply.defvjp(_forward, _backward)


def sparse_matmul_of_rows(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    """`sparse_matmul` of sampled rows; backwards their values are sorted by column in the program."""
    if matrix.num_rows == 0 or weight.size == 0:
        return jnp.zeros((matrix.num_rows, weight.shape[1]), weight.dtype)
    return _multiply_rows(matrix, weight)


@jax.custom_vjp
def _multiply_rows(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    counts = jnp.full(matrix.num_rows, matrix.columns.shape[1], jnp.int32)
    return _products(padded_rows(matrix.columns, counts), matrix.values.reshape(-1), (weight,))[0]


def _rows_forward(matrix: SparseRows, weight: jax.Array) -> tuple[jax.Array, SparseRows]:
    return _multiply_rows(matrix, weight), matrix


def _rows_backward(matrix: SparseRows, cotangent: jax.Array) -> tuple[None, jax.Array]:
    columns, positions = turned_rows(matrix.columns, matrix.values != 0, matrix.num_columns)
    values = matrix.values.reshape(-1).at[positions].get(mode="promise_in_bounds", unique_indices=True)
    return None, _products(columns, values, (cotangent,))[0]


_multiply_rows.defvjp(_rows_forward, _rows_backward)


def _products(rows: Rows, values: jax.Array, factors: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    if not factors:
        return ()
    accumulator = jnp.promote_types(factors[0].dtype, jnp.float32)
    sums = sum_rows(
        rows,
        lambda own: [
            own.of_entries(values).astype(accumulator)[..., None] * own.of_columns(factor).astype(accumulator)
            for factor in factors
        ],
    )
    return tuple(each.astype(factors[0].dtype) for each in sums)


def _buckets(matrix: SparseFeatures) -> BothBuckets:
    if matrix.buckets is None:
        raise ValueError("a feature matrix was placed without its 'buckets' view, which 'bucketed' reads")
    return matrix.buckets
