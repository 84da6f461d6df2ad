"""`text`: a bag of hashed words. Source: Weinberger et al., Feature Hashing, ICML 2009."""

import re
import zlib
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from jhgnn.data.tables.column import Column
from jhgnn.data.tables.encoders.flag import flag_column, flags, refuse_missing
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.values import Place, words
from jhgnn.graph.feature_columns import FeatureColumn

_WORD = re.compile(r"\w+")


class TextEncoder:
    """See `Encoder`. Each word adds 1 or -1 to one of `width` columns, both by its CRC-32; each row has length 1.

    Words are runs of letters, digits and underscores, in lower case. A row without any is zero.
    """

    def __init__(self, feature: Feature, fitted: FeatureColumn | None) -> None:
        self._feature, self._fitted = feature, fitted
        self._width = int(feature.options["width"]) if fitted is None else int(fitted.fitted["width"])
        self._rows, self._columns, self._signs = Growing(np.int64), Growing(np.int32), Growing(np.float32)
        self._missing = Growing(np.bool_)
        self._place_of: dict[str, tuple[int, float]] = {}

    def add(self, columns: Sequence[Column], place: Place) -> None:
        (column,), first = columns, len(self._missing)
        refuse_missing(self._feature.options["missing"], column.missing, self._feature.name, place)
        present = np.flatnonzero(~column.missing)
        texts = words(column, self._feature.name, place).take(present)
        rows, places = [], []
        for row, text in zip(present.tolist(), texts.encoded(), strict=True):
            found = _WORD.findall(text.decode().lower())
            rows += [first + row] * len(found)
            places += [self._column_of(word) for word in found]
        self._rows.add(np.array(rows, np.int64))
        self._columns.add(np.array([column for column, _ in places], np.int32))
        self._signs.add(np.array([sign for _, sign in places], np.float32))
        self._missing.add(column.missing)

    def finish(self) -> tuple[sparse.csr_array, FeatureColumn]:
        missing = self._missing.finish()
        entries = self._signs.finish(), (self._rows.finish(), self._columns.finish())
        matrix = sparse.csr_array(entries, shape=(len(missing), self._width), dtype=np.float32)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        lengths = np.sqrt(np.asarray(matrix.power(2).sum(axis=1)).ravel())
        matrix.data /= np.repeat(lengths, np.diff(matrix.indptr)).astype(np.float32)
        has_flag = flags(self._feature.options["missing"], self._fitted)
        if has_flag:
            matrix = sparse.csr_array(sparse.hstack([matrix, flag_column(missing)], format="csr"))
        fitted = {"width": self._width, "missing": has_flag}
        return matrix, FeatureColumn(self._feature.name, "text", matrix.shape[1], fitted)

    def _column_of(self, word: str) -> tuple[int, float]:
        place = self._place_of.get(word)
        if place is None:
            hashed = zlib.crc32(word.encode())
            place = self._place_of[word] = (hashed >> 1) % self._width, 1.0 if hashed & 1 else -1.0
        return place
