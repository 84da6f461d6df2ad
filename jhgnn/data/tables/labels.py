"""Classes of nodes from a column of class names, from several in one column, or from a column a class."""

from collections.abc import Sequence

import numpy as np

from jhgnn.data.tables.column import Chunk
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.schema import Labels
from jhgnn.data.tables.values import numbers, whole_numbers, word_lists, words
from jhgnn.data.tables.vocabulary import Vocabulary, renumbered
from jhgnn.errors import InputError


class LabelReader:
    """Takes the rows of the table that holds the labels, and gives labels and names of classes.

    Args:
        spec: what the schema says.
        classes: names that are known beforehand, or empty: found, ascending.
    """

    def __init__(self, spec: Labels, classes: tuple[str, ...]) -> None:
        self._spec, self._classes = spec, classes
        self.columns: Sequence[str] = spec.columns
        self._vocabulary = Vocabulary()
        self._nodes, self._codes = Growing(np.int64), Growing(np.int32)

    def add(self, chunk: Chunk, nodes: np.ndarray) -> None:
        """Takes rows, which belong to these nodes `[num_rows]`.

        Raises:
            InputError: a class is unknown, or the column can hold none; the row is named.
        """
        if self._spec.column_a_class:
            self._add_columns(chunk, nodes)
            return
        (name,), place = self._spec.columns, chunk.place
        column = chunk.columns[name]
        if self._spec.multi:
            rows, texts = word_lists(column, self._spec.separator, name, place)
        else:
            values = column.values
            if isinstance(values, np.ndarray) and values.dtype.kind == "f" and whole_numbers(column) is None:
                odd = np.flatnonzero(~column.missing & (values != np.rint(values)))
                row = int(odd[0]) if len(odd) else 0
                raise InputError(f"{place(row)}: {name} is {values[row]}; classes are text or whole numbers")
            rows = np.flatnonzero(~column.missing)
            texts = words(column, name, place).take(rows)
        codes = self._vocabulary.add(texts)
        if self._classes:
            unknown = renumbered(codes, self._vocabulary.words(), self._classes) < 0
            if unknown.any():
                item = int(np.argmax(unknown))
                raise InputError(
                    f"{place(int(rows[item]))}: {name} is {texts[item]!r}, which is none of the classes"
                    f" {', '.join(self._classes[:8])}{', ...' if len(self._classes) > 8 else ''}"
                )
        self._nodes.add(nodes[rows])
        self._codes.add(codes)

    def _add_columns(self, chunk: Chunk, nodes: np.ndarray) -> None:
        for code, name in enumerate(self._spec.columns):
            values = numbers(chunk.columns[name], name, chunk.place)
            bad = (values != 0) & (values != 1)
            if bad.any():
                row = int(np.argmax(bad))
                shown = "missing" if np.isnan(values[row]) else f"{values[row]:g}"
                raise InputError(f"{chunk.place(row)}: {name} is {shown}; a class's column holds 0 or 1")
            chosen = np.flatnonzero(values == 1)
            self._nodes.add(nodes[chosen])
            self._codes.add(np.full(len(chosen), code, np.int32))

    def finish(self, num_nodes: int, shown: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """Labels as `HeteroGraph` has them, and the names of the classes.

        Raises:
            InputError: no node has a class, or one has two where it may have one.
        """
        nodes, codes = self._nodes.finish(), self._codes.finish()
        if self._spec.column_a_class:
            names = self._spec.columns
        else:
            names = self._classes or tuple(self._vocabulary.in_order())
            codes = renumbered(codes, self._vocabulary.words(), names)
        if not len(names):
            raise InputError(f"{shown}: no row has a class in column {self._spec.columns[0]!r}")
        if self._spec.multi:
            many = np.zeros((num_nodes, len(names)), np.uint8)
            many[nodes, codes] = 1
            return many, names
        labels = np.full(num_nodes, -1, np.int32)
        labels[nodes] = codes
        twice = np.flatnonzero(labels[nodes] != codes)
        if len(twice):
            one, other = names[codes[twice[0]]], names[labels[nodes[twice[0]]]]
            raise InputError(f"{shown} gives one {self._spec.node_type} the classes {one!r} and {other!r}; keep one")
        return labels, names
