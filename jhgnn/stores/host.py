"""Rows in the host's memory, or mapped from a file: gathered for a batch by native threads without the GIL."""

import copy
from collections.abc import Collection, Mapping
from typing import Any, Self, TypeAlias

import jax
import numpy as np
from scipy import sparse

from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.stores.file_rows import read_at_random, rows_of

HostTable: TypeAlias = np.ndarray | SparseRows


class HostRows:
    """A `RowStore` of NumPy arrays, `[num_nodes, ...]` each and C-contiguous, or of padded sparse rows."""

    def __init__(self, tables: Mapping[str, HostTable]) -> None:
        self.tables = dict(tables)

    @property
    def node_types(self) -> Collection[str]:
        return self.tables.keys()

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.tables))

    def joined(self) -> dict[str, Any]:
        """All rows of each type, for devices that hold them whole."""
        return self.tables

    def gather(self, node_type: str, ids: np.ndarray) -> Any:
        """See `RowStore`; NumPy, zeros where an id is -1."""
        flat = np.ascontiguousarray(ids, np.int32).reshape(-1)
        return jax.tree.map(
            lambda table: rows_of(table, flat).reshape(*ids.shape, *table.shape[1:]), self.tables[node_type]
        )

    def abstract(self, node_type: str, ids: Any) -> Any:
        """Shapes and dtypes of `gather`'s result for ids of a shape."""
        return jax.tree.map(
            lambda table: jax.ShapeDtypeStruct((*ids.shape, *table.shape[1:]), table.dtype), self.tables[node_type]
        )

    def read_at_random(self) -> Self:
        """The same rows, of which those in files are read page by page."""
        own = copy.copy(self)
        own.tables = {name: read_at_random(table) for name, table in self.tables.items()}
        return own

    @classmethod
    def of_matrix(cls, node_type: str, matrix: np.ndarray | sparse.csr_array) -> "HostRows":
        """One type's dense or sparse feature matrix."""
        if isinstance(matrix, np.ndarray):
            return cls({node_type: np.ascontiguousarray(matrix, np.float32)})
        return cls({node_type: SparseRows.from_scipy(matrix)})
