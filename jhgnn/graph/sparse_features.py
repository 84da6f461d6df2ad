"""SparseFeatures: a sparse feature matrix as kernels see it, compressed by row and by column. A pytree."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.degree_buckets import BothBuckets, degree_buckets
from jhgnn.graph.semantic_graph import Csr

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

VIEWS = ("buckets",)
"""What an implementation may need beyond the two compressed directions."""

WHOLE_PARTS, MIN_VALUES = 64, 4096
"""Values are padded to a multiple, where there are so many.

XLA's CPU threads each take an equal part of a vector, and where there is none it computes element by element: dropout
of 76,501 values took 0.94 ms, of 76,504 0.38 ms.
"""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SparseFeatures:
    """A constant `[num_rows, num_columns]` matrix with float32 values, both directions compressed.

    Attributes:
        by_row: `indices` are columns.
        by_column: `indices` are rows: the transpose, from which a weight's gradient needs no scatter.
        rows, columns: the endpoint that each direction leaves implicit, int32 `[num_values]`.
        values, values_by_column: float32 `[num_values]`, in the order of each direction.
        row_ids, row_ids_by_column: int32 `[num_values]`, by which dropout knows the rows of a part of a larger matrix;
            None: by their numbers.
        buckets: rows and columns by their number of values, or None where no chosen implementation reads them.

    Zeros may be stored, in the last element, so that `num_values` is a multiple of `WHOLE_PARTS`.
    """

    by_row: Csr
    by_column: Csr
    rows: Array
    columns: Array
    values: Array
    values_by_column: Array
    num_rows: int = dataclasses.field(metadata={"static": True})
    num_columns: int = dataclasses.field(metadata={"static": True})
    row_ids: Array | None = None
    row_ids_by_column: Array | None = None
    buckets: BothBuckets | None = None

    @property
    def num_values(self) -> int:
        return int(self.values.shape[0])

    @property
    def density(self) -> float:
        """Share of the elements that are stored; 0 for an empty matrix."""
        return self.num_values / max(1, self.num_rows * self.num_columns)

    @classmethod
    def from_scipy(cls, matrix: Any, row_ids: np.ndarray | None = None) -> "SparseFeatures":
        """From any scipy sparse matrix, on the host; duplicates are summed. `row_ids`, int32 `[num_rows]`, as above.

        Raises:
            InputError: 2**31 values or more.
        """
        csr = sparse.csr_array(matrix).astype(np.float32)
        csr.sum_duplicates()
        if csr.nnz >= 2**31 - WHOLE_PARTS:
            raise InputError(f"a feature matrix has {csr.nnz:,} values; kernels index with int32, below 2**31")
        by_row, values = _compressed(csr)
        by_column, values_by_column = _compressed(csr.tocsc())
        rows = np.repeat(np.arange(csr.shape[0], dtype=np.int32), np.diff(by_row.indptr))
        return cls(
            by_row=by_row,
            by_column=by_column,
            rows=rows,
            columns=np.repeat(np.arange(csr.shape[1], dtype=np.int32), np.diff(by_column.indptr)),
            values=values,
            values_by_column=values_by_column,
            num_rows=csr.shape[0],
            num_columns=csr.shape[1],
            row_ids=None if row_ids is None else row_ids[rows],
            row_ids_by_column=None if row_ids is None else row_ids[by_column.indices],
        )

    def with_views(self, views: Collection[str]) -> "SparseFeatures":
        """Adds, on the host, the named `VIEWS` and drops the others."""
        buckets = None
        if "buckets" in views:
            buckets = BothBuckets(degree_buckets(self.by_row.indptr), degree_buckets(self.by_column.indptr))
        return dataclasses.replace(self, buckets=buckets)

    def place(self, views: Collection[str] = (), device: jax.Device | None = None) -> "SparseFeatures":
        """The matrix with these `VIEWS` as arrays on a device."""
        return jax.device_put(self.with_views(views), device)


def _compressed(matrix: Any) -> tuple[Csr, np.ndarray]:
    """One direction of a matrix and its values, with zeros added to the last element."""
    padding = -matrix.nnz % WHOLE_PARTS if matrix.nnz >= MIN_VALUES else 0
    indptr = matrix.indptr.astype(np.int32)
    indptr[-1] += padding
    last = (matrix.shape[1] if matrix.format == "csr" else matrix.shape[0]) - 1
    indices = np.append(matrix.indices.astype(np.int32), np.full(padding, last, np.int32))
    return Csr(indptr, indices), np.append(matrix.data, np.zeros(padding, np.float32))
