"""OneHotSlots: slots of grouped one-hot rows by their feature, for products by combined bases without a stack."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np
from scipy import sparse

from jhgnn.graph.semantic_graph import Csr

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class OneHotSlots:
    """Which slots read each feature, and by which matrix. A slot whose row has no feature is in no list.

    The slots of the groups come first; `own_rows` more follow, the first rows of the table times one matrix more.

    Attributes:
        by_feature: `indptr` int32 `[features + 1]`, `indices` int32 `[held]`: slots, none twice.
        matrices: int32 `[held]`, the number of each slot's matrix, in that order.
        entries: int32 `[held]`, where each one's value stands among the table's by row.
        num_slots: those that follow included.
        own_rows: how many follow.
        num_entries: of the table.
    """

    by_feature: Csr
    matrices: Array
    entries: Array
    num_slots: int = dataclasses.field(metadata={"static": True})
    own_rows: int = dataclasses.field(metadata={"static": True})
    num_entries: int = dataclasses.field(metadata={"static": True})

    @property
    def num_features(self) -> int:
        return int(self.by_feature.indptr.shape[0]) - 1

    def with_views(self, views: Collection[str]) -> "OneHotSlots":
        """Itself: its kernel reads nothing else."""
        return self

    @classmethod
    def of(cls, rows: np.ndarray, matrices: np.ndarray, table: Any, own_rows: int, own_matrix: int) -> "OneHotSlots":
        """On the host.

        Args:
            rows: int32 `[slots]`, the table's row that each slot of the groups holds; -1 in those that fill up a tile.
            matrices: int32 `[slots]`, which matrix multiplies it.
            table: the SciPy matrix that the table's `SparseFeatures` are made from.
            own_rows: rows that follow.
            own_matrix: which matrix multiplies those.

        Raises:
            ValueError: a row with several entries.
        """
        csr = sparse.csr_array(table, copy=True)
        csr.sum_duplicates()
        if not is_one_hot(csr):
            raise ValueError("a row of these features has several entries, and OneHotSlots are of one a row")
        rows = np.append(rows, np.arange(own_rows))
        matrices = np.append(matrices, np.full(own_rows, own_matrix))
        held = np.flatnonzero((rows >= 0) & (np.append(np.diff(csr.indptr), 0)[rows] > 0))
        entries = csr.indptr[rows[held]]
        features = csr.indices[entries]
        order = np.argsort(features, kind="stable")
        indptr = np.zeros(csr.shape[1] + 1, np.int32)
        np.cumsum(np.bincount(features, minlength=csr.shape[1]), out=indptr[1:])
        return cls(
            Csr(indptr, held[order].astype(np.int32)),
            matrices[held[order]].astype(np.int32),
            entries[order].astype(np.int32),
            num_slots=len(rows),
            own_rows=own_rows,
            num_entries=int(csr.nnz),
        )


def is_one_hot(table: Any) -> bool:
    """Whether no row of a SciPy matrix in CSR form has more than one entry; their values may be any."""
    return bool(np.diff(table.indptr).max(initial=0) <= 1)
