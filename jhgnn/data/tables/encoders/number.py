"""`number`: one column, with the mean taken off and divided by the standard deviation unless `scale = "none"`."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from jhgnn.data.tables.column import Column
from jhgnn.data.tables.encoders.flag import flag_column, flags, refuse_missing
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.values import Place, numbers
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn


class NumberEncoder:
    """See `Encoder`. Mean and deviation are those of the rows that have a value; such rows alone fill nothing in."""

    def __init__(self, feature: Feature, fitted: FeatureColumn | None) -> None:
        self._feature, self._fitted = feature, fitted
        self._values = Growing(np.float64)

    def add(self, columns: Sequence[Column], place: Place) -> None:
        values = numbers(columns[0], self._feature.name, place)
        refuse_missing(self._feature.options["missing"], np.isnan(values), self._feature.name, place)
        self._values.add(values)

    def finish(self) -> tuple[np.ndarray | sparse.csr_array, FeatureColumn]:
        name, options, values = self._feature.name, self._feature.options, self._values.finish()
        missing = np.isnan(values)
        has_flag = flags(options["missing"], self._fitted)
        if self._fitted is not None:
            fitted = dict(self._fitted.fitted)
        else:
            present = values[~missing]
            with np.errstate(over="ignore"):
                mean = float(present.mean()) if len(present) else 0.0
                deviation = float(present.std()) if len(present) else 1.0
            if not np.isfinite([mean, deviation]).all():
                raise InputError(f"feature {name!r}: its numbers reach {np.abs(present).max():.3g}; too large to scale")
            if options["scale"] == "none":
                fitted = {"fill": mean, "shift": 0.0, "divide": 1.0, "missing": has_flag}
            else:
                fitted = {"fill": mean, "shift": mean, "divide": deviation or 1.0, "missing": has_flag}
        values[missing] = fitted["fill"]
        values -= fitted["shift"]
        values /= fitted["divide"]
        with np.errstate(over="ignore"):
            column: np.ndarray = values.astype(np.float32)[:, None]
        if not np.isfinite(column).all():
            raise InputError(f"feature {name!r}: {values[~np.isfinite(column[:, 0])][0]:.3g} is beyond float32")
        if has_flag:
            column = np.hstack([column, flag_column(missing).toarray()])
        return column, FeatureColumn(name, "number", column.shape[1], fitted)
