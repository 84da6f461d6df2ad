"""Rows that are multiplied by different matrices, grouped by matrix: one batched product instead of one a matrix.

A knowledge graph has hundreds of relations, and each has its own matrix and few nodes that send along it. The rows of
each matrix fill whole tiles of `TILE` slots, so that a tile meets one matrix and every tile has one shape.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np
from scipy import sparse

from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

TILE = 32
"""Slots of a tile. With 16 or 64 the products of AIFB take as long or longer (docs/experiments.md)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class RowGroups:
    """Slots, tile after tile; each holds a row of a table, and slots that fill up a tile hold row 0.

    Attributes:
        rows: int32 `[slots]`, the row that each slot holds.
        matrix_of_tile: int32 `[tiles]`, ascending.
        used: bool `[slots]`, false in slots that fill up a tile.
        counts: int32 `[matrices]`, rows of each group.
        into_rows: from slots to the table's rows, by which gradients are summed; filling slots have no edge.
        into_matrices: from tiles to matrices, likewise.
        features: the slots' sparse features where the table is sparse, else None; `OneHotSlots` where rows are read of
            combined bases.
    """

    rows: Array
    matrix_of_tile: Array
    used: Array
    counts: Array
    into_rows: SemanticGraph
    into_matrices: SemanticGraph
    features: "FeatureGroups | OneHotSlots | None" = None

    @property
    def num_slots(self) -> int:
        return int(self.rows.shape[0])

    @property
    def num_tiles(self) -> int:
        return int(self.matrix_of_tile.shape[0])

    @property
    def num_matrices(self) -> int:
        return self.into_matrices.num_targets

    def with_views(self, views: Collection[str], feature_views: Collection[str] = ()) -> "RowGroups":
        """With what the implementations of sums and of sparse products read (`OP.views`), on the host."""
        return dataclasses.replace(
            self,
            into_rows=self.into_rows.with_views(views),
            into_matrices=self.into_matrices.with_views(views),
            features=None if self.features is None else self.features.with_views(feature_views),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureGroups:
    """The sparse features of grouped slots as one matrix, `[slots, matrices * columns]`.

    A slot's features stand in its own matrix's columns. So one sparse product with the matrices stacked, `[matrices *
    columns, width]`, projects all slots, and one-hot rows read rows of the stack.

    Attributes:
        matrix: the structure; its values are replaced.
        entries, entries_by_column: int32, where each of its values, in either order, stands among the table's by row;
            -1 for values that only pad.
    """

    matrix: SparseFeatures
    entries: Array
    entries_by_column: Array

    def with_views(self, views: Collection[str]) -> "FeatureGroups":
        return dataclasses.replace(self, matrix=self.matrix.with_views(views))

    @classmethod
    def of(cls, groups: RowGroups, table: Any) -> "FeatureGroups":
        """On the host; `table` is the SciPy matrix that the table's `SparseFeatures` are made from."""
        csr = sparse.csr_array(table, copy=True)
        csr.sum_duplicates()
        counts = np.where(groups.used, np.diff(csr.indptr)[groups.rows], 0)
        indptr = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        entries = np.arange(indptr[-1]) + np.repeat(csr.indptr[groups.rows] - indptr[:-1], counts)
        matrix_of_slot = np.repeat(groups.matrix_of_tile.astype(np.int64), TILE)
        columns = csr.indices[entries] + csr.shape[1] * np.repeat(matrix_of_slot, counts)
        shape = (len(counts), groups.num_matrices * csr.shape[1])
        ones = np.ones(len(entries), np.float32)
        structure = SparseFeatures.from_scipy(sparse.csr_array((ones, columns, indptr), shape=shape))
        turned = sparse.csr_array((np.arange(len(entries)), columns, indptr), shape=shape).tocsc().data
        padding = np.full(structure.num_values - len(entries), -1)
        by_row, by_column = (np.append(found, padding).astype(np.int32) for found in (entries, entries[turned]))
        return cls(structure, by_row, by_column)


def row_groups(groups: Sequence[np.ndarray], num_rows: int, name: str = "") -> tuple[RowGroups, list[np.ndarray]]:
    """Groups rows of a table, on the host.

    Args:
        groups: for each matrix the rows that it multiplies, int32, none of them twice.
        num_rows: of the table.
        name: of the graphs by which gradients are summed.

    Returns:
        the groups, and for each matrix the slots of its rows, int64, in their order.
    """
    tiles = np.array([-(-len(rows) // TILE) for rows in groups], np.int64)
    bounds = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(tiles, out=bounds[1:])
    slots = [TILE * first + np.arange(len(rows)) for first, rows in zip(bounds[:-1], groups, strict=True)]
    filled = np.concatenate(slots) if slots else np.zeros(0, np.int64)
    held = np.concatenate(groups) if groups else np.zeros(0, np.int32)
    num_tiles = int(bounds[-1])
    rows = np.zeros(TILE * num_tiles, np.int32)
    rows[filled] = held
    used = np.zeros(len(rows), bool)
    used[filled] = True
    found = RowGroups(
        rows=rows,
        matrix_of_tile=np.repeat(np.arange(len(groups), dtype=np.int32), tiles),
        used=used,
        counts=np.array([len(rows) for rows in groups], np.int32),
        into_rows=SemanticGraph.from_pairs(filled, held, len(rows), num_rows, name),
        into_matrices=SemanticGraph.from_incoming(bounds, np.arange(num_tiles), num_tiles, name),
    )
    return found, slots
