"""Chunks of a table: some rows of some columns, each column as one array, and how messages call a row."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from jhgnn.graph.texts import Texts


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """A list a row: that of row `i` is `values[offsets[i] : offsets[i + 1]]`; `offsets` int64 `[num_rows + 1]`."""

    values: "Texts | np.ndarray"
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1


Values: TypeAlias = Texts | Lists | np.ndarray
"""`[num_rows]`: Texts, Lists, or an array of int64, float64, bool or datetime64[us]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """One column of a chunk: `values`, of which those under the mask `missing` `[num_rows]` mean nothing."""

    values: Values
    missing: np.ndarray

    def __len__(self) -> int:
        return len(self.missing)


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Rows that are worked on together; `place(row)` is how a message calls one of them: `orders.csv line 7`."""

    columns: Mapping[str, Column]
    num_rows: int
    place: Callable[[int], str]


def without_words(texts: Texts, words: tuple[str, ...]) -> Column:
    """Texts as a column in which those that equal one of `words` are missing."""
    missing = np.zeros(len(texts), bool)
    for word in words:
        encoded = np.frombuffer(word.encode(), np.uint8)
        rows = np.flatnonzero(texts.lengths == len(encoded))
        if len(rows) and len(encoded):
            rows = rows[(texts.take(rows).padded(len(encoded)) == encoded).all(axis=1)]
        missing[rows] = True
    return Column(texts, missing)


def kind_of(values: Values) -> str:
    """What values are, in the words of messages."""
    if isinstance(values, Texts):
        return "text"
    if isinstance(values, Lists):
        return "lists"
    return {"i": "whole numbers", "f": "numbers", "b": "true or false", "M": "times"}[values.dtype.kind]
