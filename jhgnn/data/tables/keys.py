"""Keys of nodes: read from a column, collected in the order of rows, or gathered from the edges that name them."""

from collections.abc import Sequence

import numpy as np

from jhgnn.data.tables.column import Column, kind_of
from jhgnn.data.tables.values import Place, whole_numbers
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts, hashes, integers, same

_MERGE_KEYS = 1 << 22


def key_values(column: Column, name: str, place: Place) -> np.ndarray | Texts:
    """Keys of a column: int64 where all are integers as they are written, else Texts.

    Raises:
        InputError: a key is missing, or the column holds something that can be no key; the row is named.
    """
    if column.missing.any():
        raise InputError(f"{place(int(np.argmax(column.missing)))}: no key in column {name!r}; need one in each row")
    whole = whole_numbers(column)
    if whole is not None:
        return whole
    if not isinstance(column.values, Texts):
        raise InputError(f"{place(0)}: column {name!r} holds {kind_of(column.values)}; keys are text or whole numbers")
    return column.values


class KeyCollector:
    """Keys in the order in which they come; integers as long as all are."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray | Texts] = []

    def add(self, keys: np.ndarray | Texts) -> None:
        self._parts.append(keys.packed() if isinstance(keys, Texts) else keys.copy())

    def finish(self) -> np.ndarray | Texts:
        if any(isinstance(part, Texts) for part in self._parts):
            return _joined(
                [Texts.from_integers(part) if isinstance(part, np.ndarray) else part for part in self._parts]
            )
        return np.concatenate([np.zeros(0, np.int64), *(part for part in self._parts if isinstance(part, np.ndarray))])


class DistinctKeys:
    """Every key once, ascending: integers by number, else all by text. Holds no more than the distinct ones."""

    def __init__(self) -> None:
        self._integers = np.zeros(0, np.int64)
        self._pending: list[np.ndarray] = []
        self._texts: set[bytes] = set()

    def add(self, keys: np.ndarray | Texts) -> None:
        if isinstance(keys, np.ndarray):
            self._pending.append(np.unique(keys))
            if sum(map(len, self._pending)) > max(_MERGE_KEYS, len(self._integers)):
                self._merge()
            return
        _, first, of_row = np.unique(hashes(keys), return_index=True, return_inverse=True)
        self._texts.update(keys.take(first).encoded())
        odd = ~same(keys, keys.take(first[of_row]))  # another text of the same hash
        self._texts.update(keys.take(np.flatnonzero(odd)).encoded())

    def _merge(self) -> None:
        self._integers = np.unique(np.concatenate([self._integers, *self._pending]))
        self._pending = []

    def finish(self) -> np.ndarray | Texts:
        self._merge()
        if not self._texts:
            return self._integers
        self._texts.update(Texts.from_integers(self._integers).encoded())
        texts = Texts.from_encoded(sorted(self._texts))
        values, whole = integers(texts)
        return np.sort(values) if whole.all() else texts


def _joined(parts: Sequence[Texts]) -> Texts:
    shifts = np.cumsum([0, *(len(part.data) for part in parts)])[:-1]
    return Texts(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([part.lengths for part in parts]),
    )
