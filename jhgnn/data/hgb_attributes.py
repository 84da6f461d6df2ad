"""Comma-separated attributes of HGB's `node.dat`, parsed a block of rows at a time.

Bag-of-words rows are single digits with commas between. Two bytes an entry, so a block is a matrix of 16-bit words,
and one comparison finds the few that are not `0,`: `bench/readers.py` measures it.
"""

import numpy as np
from scipy import sparse

from jhgnn.data.feature_matrix import SPARSE_BELOW, compact
from jhgnn.data.number_table import numbers_in
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import Features

_ZERO, _NINE = (ord(",") << 8) + ord("0"), (ord(",") << 8) + ord("9")  # "0," and "9," as little-endian words


class AttributeRows:
    """Collects the attribute rows of one node type."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._width = 0
        self._rows: list[np.ndarray] = []
        self._blocks: list[np.ndarray | sparse.csr_array] = []

    def add(self, texts: list[bytes], rows: list[int]) -> None:
        """Adds a block; `rows` are the rows of the file, from 1.

        Raises:
            InputError: a row has another number of attributes than the first, or one that is not a finite number.
        """
        if not texts:
            return
        self._width = self._width or texts[0].count(b",") + 1
        short = np.fromiter(map(len, texts), np.int64, len(texts)) == 2 * self._width - 1
        digits = self._digits([texts[i] for i in np.flatnonzero(short)]) if short.any() else None
        if digits is None:
            short[:] = False
        else:
            self._append(digits, np.asarray(rows)[short])
        rest = np.flatnonzero(~short)
        if len(rest):
            self._append(self._numbers([texts[i] for i in rest], [rows[i] for i in rest]), np.asarray(rows)[rest])

    def matrix(self, rows: np.ndarray) -> Features:
        """`[len(rows), width]`, one row for each row of the file named; empties this object."""
        order = np.argsort(np.concatenate(self._rows), kind="stable")
        position = order[np.searchsorted(np.concatenate(self._rows)[order], rows)]
        nonzero = sum(int(np.count_nonzero(b)) if isinstance(b, np.ndarray) else int(b.nnz) for b in self._blocks)
        if nonzero < SPARSE_BELOW * len(rows) * self._width:
            whole = sparse.csr_array(sparse.vstack([sparse.csr_array(block) for block in self._blocks], "csr"))
        else:
            whole = np.concatenate([b if isinstance(b, np.ndarray) else b.toarray() for b in self._blocks])
        self._blocks = []
        ordered = len(position) == whole.shape[0] and (np.diff(position) == 1).all()
        return compact(whole if ordered else whole[position])

    def _append(self, block: np.ndarray | sparse.csr_array, rows: np.ndarray) -> None:
        self._blocks.append(block)
        self._rows.append(rows)

    def _digits(self, texts: list[bytes]) -> sparse.csr_array | None:
        """None where the rows, of the length that single digits have, hold something else."""
        words = np.frombuffer(b",".join(texts) + b",", "<u2")
        positions = np.flatnonzero(words != _ZERO)
        values = words[positions]
        if values.size and (values.min() <= _ZERO or values.max() > _NINE):
            return None
        indptr = np.searchsorted(positions, np.arange(len(texts) + 1) * self._width)
        data = (values - _ZERO).astype(np.float32)
        columns = (positions % self._width).astype(np.int32)
        return sparse.csr_array((data, columns, indptr.astype(np.int32)), shape=(len(texts), self._width))

    def _numbers(self, texts: list[bytes], rows: list[int]) -> np.ndarray:
        if all(text.count(b",") == self._width - 1 for text in texts):
            values = numbers_in(b",".join(texts), np.float64, ",")
            if values.size == len(texts) * self._width:
                with np.errstate(over="ignore"):  # refused below
                    matrix = values.reshape(len(texts), self._width).astype(np.float32)
                if np.isfinite(matrix).all():
                    return matrix
        for text, row in zip(texts, rows, strict=True):
            fields = text.split(b",")
            if len(fields) != self._width:
                raise InputError(
                    f"{self._where} row {row} has {len(fields)} attributes; its node type has {self._width}"
                )
            for column, field in enumerate(fields):
                if numbers_in(field, np.float32, ",").size != 1 or not np.isfinite(float(field)):
                    shown = field.decode(errors="replace")
                    raise InputError(f"{self._where} row {row}: attribute {column} is {shown!r}, not a finite number")
        raise InputError(f"{self._where} rows {rows[0]} to {rows[-1]}: attributes are not finite float32 numbers")
