"""For the rows of a sample: each row's padded columns gather rows of the weight, which are summed."""

import jax

from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.ops.neighbor_table import weighted_sum


def sparse_matmul(matrix: SparseRows, weight: jax.Array) -> jax.Array:
    """See `jhgnn.ops.sparse_matmul`."""
    return weighted_sum(matrix.columns, matrix.values, weight).astype(weight.dtype)
