"""The reference: gather rows of the weight, scale, segment sum; both directions sum sorted segments."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import Csr
from jhgnn.graph.sparse_features import SparseFeatures


@jax.custom_vjp
def sparse_matmul(matrix: SparseFeatures, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`. Holds `[num_values, width]` between its two steps."""
    return _multiply(matrix.by_row, matrix.rows, matrix.values, weight, matrix.num_rows)


def _forward(matrix: SparseFeatures, weight: jax.Array) -> tuple[jax.Array, SparseFeatures]:
    return sparse_matmul(matrix, weight), matrix


def _backward(matrix: SparseFeatures, cotangent: jax.Array) -> tuple[None, jax.Array]:
    gradient = _multiply(matrix.by_column, matrix.columns, matrix.values_by_column, cotangent, matrix.num_columns)
    return None, gradient


sparse_matmul.defvjp(_forward, _backward)


def _multiply(csr: Csr, rows: jax.Array, values: jax.Array, dense: jax.Array, num_rows: int) -> jax.Array:
    accumulator = jnp.promote_types(dense.dtype, jnp.float32)
    terms = (
        dense.at[csr.indices].get(mode="promise_in_bounds").astype(accumulator) * values.astype(accumulator)[:, None]
    )
    return jax.ops.segment_sum(terms, rows, num_rows, indices_are_sorted=True).astype(dense.dtype)


def sparse_matmul_stack(matrix: SparseFeatures, stack: jax.Array) -> tuple[jax.Array, ...]:
    """See `jhgnn.ops.sparse_matmul`: one product by all matrices joined."""
    matrices, _, width = stack.shape
    if not matrices:
        return ()
    product = sparse_matmul(matrix, jnp.concatenate(list(stack), axis=1))
    return tuple(jax.lax.split(product, [width] * matrices, axis=1))
