"""For the rows of a sample: each row's padded columns gather rows of the weight, which are summed."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops.neighbor_table import weighted_sum


def sparse_matmul(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`."""
    values = matrix.values.astype(jnp.promote_types(weight.dtype, jnp.float32))  # the sums are of the values' dtype
    return weighted_sum(matrix.columns, values, weight).astype(weight.dtype)
