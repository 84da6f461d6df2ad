"""SparseRows: rows of a sparse feature matrix padded to one length, so that any of them gather into a static shape."""

import dataclasses
from typing import Any

import jax
import numpy as np
from scipy import sparse

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """A `[num_rows, num_columns]` matrix with at most `width` stored values a row.

    Attributes:
        columns: int32 `[num_rows, width]`, ascending; 0 beyond a row's values.
        values: float32 `[num_rows, width]`, 0 likewise.
    """

    columns: Array
    values: Array
    num_columns: int = dataclasses.field(metadata={"static": True})

    @property
    def num_rows(self) -> int:
        return int(self.columns.shape[0])

    @classmethod
    def from_scipy(cls, matrix: Any) -> "SparseRows":
        """From any scipy sparse matrix, on the host; duplicates are summed."""
        csr = sparse.csr_array(matrix).astype(np.float32)
        csr.sum_duplicates()
        counts = np.diff(csr.indptr)
        width = max(1, int(counts.max(initial=0)))
        columns = np.zeros((csr.shape[0], width), np.int32)
        values = np.zeros((csr.shape[0], width), np.float32)
        stored = np.arange(width)[None, :] < counts[:, None]
        columns[stored], values[stored] = csr.indices, csr.data
        return cls(columns, values, csr.shape[1])


def padded_bytes(matrix: sparse.csr_array) -> int:
    """Memory of `SparseRows.from_scipy`; a row with many values makes all of them long."""
    return 8 * matrix.shape[0] * max(1, int(np.diff(matrix.indptr).max(initial=0)))
