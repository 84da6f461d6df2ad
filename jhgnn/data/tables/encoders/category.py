"""`category` and `categories`: a column a category, 1 where the row has it; one, or several, a row."""

import logging
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from jhgnn.data.tables.column import Column
from jhgnn.data.tables.encoders.flag import flag_column, flags, refuse_missing
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.schema import Feature
from jhgnn.data.tables.values import Place, word_lists, words
from jhgnn.data.tables.vocabulary import Vocabulary, renumbered
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn

_log = logging.getLogger(__name__)


class CategoryEncoder:
    """See `Encoder`. Categories are those that the schema lists, or those found, ascending.

    With `max_categories`, the most frequent are kept. With `other`, a column stands for all that have no own one.
    """

    def __init__(self, feature: Feature, fitted: FeatureColumn | None) -> None:
        self._feature, self._fitted = feature, fitted
        self._vocabulary = Vocabulary()
        self._rows, self._codes, self._missing = Growing(np.int64), Growing(np.int32), Growing(np.bool_)
        self._listed = feature.options["categories"]
        self._other = bool(fitted.fitted["other"]) if fitted is not None else bool(feature.options["other"])

    def add(self, columns: Sequence[Column], place: Place) -> None:
        (column,), feature, first = columns, self._feature, len(self._missing)
        refuse_missing(feature.options["missing"], column.missing, feature.name, place)
        if feature.kind == "categories":
            rows, texts = word_lists(column, feature.options["separator"], feature.name, place)
        else:
            rows = np.flatnonzero(~column.missing)
            texts = words(column, feature.name, place).take(rows)
        codes = self._vocabulary.add(texts)
        if self._listed is not None and not self._other:
            unknown = renumbered(codes, self._vocabulary.words(), self._listed) < 0
            if unknown.any():
                item = int(np.argmax(unknown))
                raise InputError(
                    f"{place(int(rows[item]))}: {feature.name} is {texts[item]!r}, which is none of the categories"
                    f" {', '.join(self._listed[:8])}{', ...' if len(self._listed) > 8 else ''}; add it, or say"
                    " other = true"
                )
        self._rows.add(rows + first)
        self._codes.add(codes)
        self._missing.add(column.missing)

    def finish(self) -> tuple[sparse.csr_array, FeatureColumn]:
        rows, codes, missing = self._rows.finish(), self._codes.finish(), self._missing.finish()
        found = self._vocabulary.words()
        if self._fitted is not None:
            categories = tuple(self._fitted.fitted["categories"])
        elif self._listed is not None:
            categories = self._listed
        else:
            categories = tuple(self._most_frequent(codes, found))
        columns = renumbered(codes, found, categories)
        if self._other:
            columns[columns < 0] = len(categories)
        elif (columns < 0).any():  # only where they were found in another graph
            _log.warning(
                "feature %s: %d values are in no category that was found before, such as %s: they are left out",
                self._feature.name, int((columns < 0).sum()), found[int(codes[columns < 0][0])],
            )  # fmt: skip
            rows, columns = rows[columns >= 0], columns[columns >= 0]
        width = len(categories) + self._other
        if not width:
            raise InputError(f"feature {self._feature.name!r}: no row has a value; leave it out")
        matrix = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(missing), width))
        matrix.data[:] = 1  # a category that a row names twice
        has_flag = flags(self._feature.options["missing"], self._fitted)
        if has_flag:
            matrix = sparse.csr_array(sparse.hstack([matrix, flag_column(missing)], format="csr"))
        fitted = {"categories": list(categories), "other": self._other, "missing": has_flag}
        return matrix, FeatureColumn(self._feature.name, self._feature.kind, matrix.shape[1], fitted)

    def _most_frequent(self, codes: np.ndarray, found: list[str]) -> list[str]:
        most, in_order = self._feature.options["max_categories"], self._vocabulary.in_order()
        if not most or len(found) <= most:
            return in_order
        counts = dict(zip(found, np.bincount(codes, minlength=len(found)).tolist(), strict=True))
        kept = set(sorted(in_order, key=lambda word: -counts[word])[:most])
        return [word for word in in_order if word in kept]
