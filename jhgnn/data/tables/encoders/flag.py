"""What becomes of rows without a value: `fill` (zeros, or the mean), `flag` (that, and a column of ones), `error`."""

import numpy as np
from scipy import sparse

from jhgnn.data.tables.values import Place
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn


def flags(rule: str, fitted: FeatureColumn | None) -> bool:
    """Whether there is a column that says which rows have no value."""
    return bool(fitted.fitted["missing"]) if fitted is not None else rule == "flag"


def refuse_missing(rule: str, missing: np.ndarray, name: str, place: Place) -> None:
    """Raises InputError for the first row without a value where the rule is `error`."""
    if rule == "error" and missing.any():
        raise InputError(f"{place(int(np.argmax(missing)))}: no value for {name!r}, whose rule is missing = 'error'")


def flag_column(missing: np.ndarray) -> sparse.csr_array:
    """One column `[num_rows, 1]`, float32, 1 where a value is missing."""
    return sparse.csr_array(missing.astype(np.float32)[:, None])
