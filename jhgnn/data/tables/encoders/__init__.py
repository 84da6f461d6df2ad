"""How columns become features: one file a kind, all of one contract (`Encoder`).

An encoder sees the rows in chunks and gives its part of the type's feature matrix at the end, with a `FeatureColumn`
that says how. Made from such a `FeatureColumn`, it does to other rows exactly what was done to those.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from scipy import sparse

from jhgnn.data.feature_matrix import SPARSE_BELOW
from jhgnn.data.tables.column import Column
from jhgnn.data.tables.encoders.category import CategoryEncoder
from jhgnn.data.tables.encoders.number import NumberEncoder
from jhgnn.data.tables.encoders.text import TextEncoder
from jhgnn.data.tables.encoders.vector import VectorEncoder
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.values import Place
from jhgnn.graph.feature_columns import FeatureColumn

Part: TypeAlias = np.ndarray | sparse.csr_array
"""Float32 `[num_rows, width]`."""


class Encoder(Protocol):
    """Turns the columns of one feature into numbers."""

    def add(self, columns: Sequence[Column], place: Place) -> None:
        """Takes the next rows.

        Raises:
            InputError: a value is not what the kind needs; its row is named.
        """
        ...

    def finish(self) -> tuple[Part, FeatureColumn]:
        """The rows as numbers, all of them finite."""
        ...


ENCODERS: dict[str, Callable[[Feature, FeatureColumn | None], Encoder]] = {
    "number": NumberEncoder,
    "category": CategoryEncoder,
    "categories": CategoryEncoder,
    "text": TextEncoder,
    "vector": VectorEncoder,
}


def side_by_side(parts: Sequence[Part]) -> Part:
    """The parts as one matrix: CSR where under a fifth of it is not zero, else dense."""
    num_rows, width = parts[0].shape[0], sum(part.shape[1] for part in parts)
    nonzero = sum(int(np.count_nonzero(part)) if isinstance(part, np.ndarray) else int(part.nnz) for part in parts)
    if nonzero < SPARSE_BELOW * num_rows * width:
        return sparse.csr_array(sparse.hstack([sparse.csr_array(part) for part in parts], format="csr"))
    whole, start = np.empty((num_rows, width), np.float32), 0
    for part in parts:
        end = start + part.shape[1]
        whole[:, start:end] = part if isinstance(part, np.ndarray) else part.toarray()
        start = end
    return whole
