"""`vector`: numbers as they are, from a column of lists or from several columns of numbers."""

from collections.abc import Sequence

import numpy as np

from jhgnn.data.tables.column import Column
from jhgnn.data.tables.encoders.flag import flag_column, flags, refuse_missing
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.values import Place, numbers, vectors
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn


class VectorEncoder:
    """See `Encoder`. Rows without a vector are zero; of several columns, a missing one is zero alone."""

    def __init__(self, feature: Feature, fitted: FeatureColumn | None) -> None:
        self._feature, self._fitted = feature, fitted
        self._width = int(feature.options["width"]) if fitted is None else int(fitted.fitted["width"])
        self._parts: list[np.ndarray] = []

    def add(self, columns: Sequence[Column], place: Place) -> None:
        name = self._feature.name
        if len(columns) == 1:
            part, self._width = vectors(columns[0], self._width, name, place)
        else:
            named = zip(columns, self._feature.columns, strict=True)
            part = np.column_stack([numbers(column, column_name, place) for column, column_name in named])
            if self._width and self._width != len(columns):
                raise InputError(f"{place(0)}: {name} is made of {len(columns)} columns; need {self._width}")
            self._width = len(columns)
        refuse_missing(self._feature.options["missing"], np.isnan(part).any(axis=1), name, place)
        with np.errstate(over="ignore"):
            narrow = part.astype(np.float32)
        if np.isinf(narrow).any():
            row = int(np.argmax(np.isinf(narrow).any(axis=1)))
            raise InputError(f"{place(row)}: {name} holds {part[row][np.isinf(narrow[row])][0]:.3g}, beyond float32")
        self._parts.append(narrow)

    def finish(self) -> tuple[np.ndarray, FeatureColumn]:
        if not self._width:
            raise InputError(f"feature {self._feature.name!r}: no row has a vector; say its width, or leave it out")
        matrix = np.zeros((sum(map(len, self._parts)), self._width), np.float32)
        missing, start = np.zeros(len(matrix), bool), 0
        while self._parts:  # given up one by one, so that both never stand in memory whole
            part = self._parts.pop(0)
            rows = slice(start, start + len(part))
            if part.shape[1]:  # none of the rows before the first with a vector has one
                missing[rows] = np.isnan(part).any(axis=1)
                matrix[rows] = np.nan_to_num(part, copy=False)
            else:
                missing[rows] = True
            start = rows.stop
        has_flag = flags(self._feature.options["missing"], self._fitted)
        fitted = {"width": self._width, "missing": has_flag}
        if has_flag:
            matrix = np.hstack([matrix, flag_column(missing).toarray()])
        return matrix, FeatureColumn(self._feature.name, "vector", matrix.shape[1], fitted)
