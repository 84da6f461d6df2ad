"""SparseFeatures: a sparse feature matrix as kernels see it, compressed by row and by column. A pytree."""

import dataclasses
from typing import Any

import jax
import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.semantic_graph import Csr

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SparseFeatures:
    """A constant `[num_rows, num_columns]` matrix with float32 values, both directions compressed.

    Attributes:
        by_row: `indices` are columns.
        by_column: `indices` are rows: the transpose, from which a weight's gradient needs no scatter.
        rows, columns: the endpoint that each direction leaves implicit, int32 `[num_values]`.
        values, values_by_column: float32 `[num_values]`, in the order of each direction.
    """

    by_row: Csr
    by_column: Csr
    rows: Array
    columns: Array
    values: Array
    values_by_column: Array
    num_rows: int = dataclasses.field(metadata={"static": True})
    num_columns: int = dataclasses.field(metadata={"static": True})

    @property
    def num_values(self) -> int:
        return int(self.values.shape[0])

    @property
    def density(self) -> float:
        """Share of the elements that are stored; 0 for an empty matrix."""
        return self.num_values / max(1, self.num_rows * self.num_columns)

    @classmethod
    def from_scipy(cls, matrix: Any) -> "SparseFeatures":
        """From any scipy sparse matrix, on the host; duplicates are summed.

        Raises:
            InputError: 2**31 values or more.
        """
        csr = sparse.csr_array(matrix).astype(np.float32)
        csr.sum_duplicates()
        if csr.nnz >= 2**31:
            raise InputError(f"a feature matrix has {csr.nnz:,} values; kernels index with int32, below 2**31")
        csc = csr.tocsc()
        return cls(
            by_row=Csr(csr.indptr.astype(np.int32), csr.indices.astype(np.int32)),
            by_column=Csr(csc.indptr.astype(np.int32), csc.indices.astype(np.int32)),
            rows=np.repeat(np.arange(csr.shape[0], dtype=np.int32), np.diff(csr.indptr)),
            columns=np.repeat(np.arange(csr.shape[1], dtype=np.int32), np.diff(csc.indptr)),
            values=csr.data,
            values_by_column=csc.data,
            num_rows=csr.shape[0],
            num_columns=csr.shape[1],
        )

    def place(self, device: jax.Device | None = None) -> "SparseFeatures":
        """The matrix with its arrays on a device."""
        return jax.device_put(self, device)
