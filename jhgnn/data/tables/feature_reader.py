"""FeatureReader: the columns of a table that are features, a chunk at a time, as one matrix."""

import dataclasses
import fnmatch
from collections.abc import Sequence

from jhgnn.data.tables.column import Chunk
from jhgnn.data.tables.encoders import ENCODERS, Part, side_by_side
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.table import Table
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn


class FeatureReader:
    """Encodes features of the rows of a table.

    Args:
        features: what the schema says.
        table: that they are of.
        fitted: how the features of another graph became numbers; None: to be found here.

    Raises:
        InputError: a pattern names no column.
    """

    def __init__(self, features: Sequence[Feature], table: Table, fitted: Sequence[FeatureColumn] | None) -> None:
        self._table, self._count, self._is_fitted = table, 0, fitted is not None
        self._features = [_with_columns(feature, table) for feature in features]
        self._encoders = [
            ENCODERS[feature.kind](feature, None if fitted is None else fitted[number])
            for number, feature in enumerate(self._features)
        ]
        self.columns = [column for feature in self._features for column in feature.columns]

    def add(self, chunk: Chunk) -> None:
        """Takes the next rows; raises InputError for a value that is not what its kind needs, with its row."""
        for feature, encoder in zip(self._features, self._encoders, strict=True):
            encoder.add([chunk.columns[name] for name in feature.columns], chunk.place)
        self._count += chunk.num_rows

    def finish(self) -> tuple[Part | None, tuple[FeatureColumn, ...]]:
        """The matrix `[num_rows, width]` and what its columns mean; None without features, or without rows to find out.

        Raises:
            InputError: a feature has no value in any row.
        """
        if not self._encoders or not (self._count or self._is_fitted):
            return None, ()
        try:
            parts, columns = zip(*(encoder.finish() for encoder in self._encoders), strict=True)
        except InputError as error:
            raise InputError(f"{self._table.shown}: {error}") from None
        return side_by_side(parts), columns


def _with_columns(feature: Feature, table: Table) -> Feature:
    """The feature with the columns that a pattern such as `embedding_*` stands for, in the table's order."""
    if not any(character in name for name in feature.columns for character in "*?"):
        return feature
    columns: list[str] = []
    names = table.names()
    for pattern in feature.columns:
        found = [pattern] if pattern in names else [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise InputError(f"{table.shown} has no column like {pattern!r}, of which feature {feature.name!r} is made")
        columns += found
    return dataclasses.replace(feature, columns=tuple(columns))
