"""Features of which each process reads the rows of its own parts, and no others."""

import dataclasses
from pathlib import Path

import numpy as np

from jhgnn.distributed.part import load_features
from jhgnn.errors import InputError
from jhgnn.graph.sparse_rows import SparseRows


@dataclasses.dataclass(frozen=True, eq=False)
class PartRows:
    """The features of a node type in a folder of parts; they stand where a graph read whole has its matrix.

    Attributes:
        folder: of the partition.
        node_type: whose features.
        shape: `(num_nodes, width)` of the whole matrix.
        longest: the most values that a row of a sparse matrix stores.
        sparse: whether rows are kept as `SparseRows`, and not dense.
    """

    folder: Path
    node_type: str
    shape: tuple[int, int]
    longest: int
    sparse: bool

    @property
    def padded_bytes(self) -> int:
        """Memory of all rows as `SparseRows`."""
        return 8 * self.shape[0] * max(1, self.longest)

    @property
    def dense_bytes(self) -> int:
        """Memory of all rows, dense."""
        return 4 * self.shape[0] * self.shape[1]

    def cut(self, rows: int, places: range) -> np.ndarray | SparseRows:
        """The rows of some parts, leaves `[places, rows, ...]`, zeros where a part has no more.

        Args:
            rows: of each place; no fewer than any of its parts owns.
            places: numbers of the parts.

        Raises:
            InputError: the part is missing, damaged or of another partitioning.
        """
        matrices = [load_features(self.folder, number, self.node_type) for number in places]
        if not self.sparse:
            out = np.zeros((len(places), rows, self.shape[1]), np.float32)
            for place, matrix in zip(out, matrices, strict=True):
                place[: matrix.shape[0]] = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            return out
        width = max(1, self.longest)
        columns = np.zeros((len(places), rows, width), np.int32)
        values = np.zeros((len(places), rows, width), np.float32)
        for index, matrix in enumerate(matrices):
            own = SparseRows.from_scipy(matrix)
            count, longest = own.columns.shape
            if longest > width:
                raise InputError(
                    f"{self.folder}: part {places[index]} has a row of {longest} features of {self.node_type!r}, over"
                    f" the {width} that were written; write the partition again"
                )
            columns[index, :count, :longest], values[index, :count, :longest] = own.columns, own.values
        return SparseRows(columns, values, self.shape[1])
