"""Rows of a part's features by new id, read from disk when they are asked for."""

from collections.abc import Collection

import numpy as np
from scipy import sparse

from jhgnn.distributed.part import Part
from jhgnn.errors import InputError
from jhgnn.graph.sampled import PADDING


class PartFeatureStore:
    """A `RowStore` of the nodes that a part owns, over its memory-mapped arrays, of which it holds no copy."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @property
    def node_types(self) -> Collection[str]:
        return self.part.features.keys()

    @property
    def widths(self) -> dict[str, int]:
        """Columns of each type that has features."""
        return {node_type: layout.width for node_type, layout in self.part.manifest.features.items()}

    def row_bytes(self, node_type: str) -> int:
        """Bytes of one gathered row."""
        return 4 * self.widths[node_type]

    def gather(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        """Rows of new ids, float32 `[*ids.shape, width]`; zeros for `PADDING` (-1). Rows of sparse features come dense.

        Args:
            node_type: with features.
            ids: integers of any shape, owned by the part or `PADDING`; repeats are allowed.

        Raises:
            InputError: the type is unknown or has no features, or the part does not own an id.
        """
        if node_type not in self.part.features:
            known = ", ".join(self.part.features) or "none"
            raise InputError(
                f"part {self.part.number} has no features of type {node_type!r}; types with features: {known}"
            )
        matrix, owned = self.part.features[node_type], self.part.owned(node_type)
        known_ids = ids != PADDING
        elsewhere = known_ids & ((ids < owned.start) | (ids >= owned.stop))
        if elsewhere.any():
            node = int(ids.flat[np.argmax(elsewhere)])
            raise InputError(
                f"{node_type} {node} is not owned by part {self.part.number}, which owns {owned.start} to"
                f" {owned.stop - 1}; ask its owner"
            )
        rows = np.zeros((*ids.shape, matrix.shape[1]), np.float32)
        wanted = ids[known_ids] - owned.start
        rows[known_ids] = matrix[wanted].toarray() if sparse.issparse(matrix) else matrix[wanted]
        return rows
