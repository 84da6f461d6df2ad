"""Numbers in text, fast: whole blocks of rows at a time in NumPy, and row by row only to say what is wrong."""

import warnings
from typing import Any, BinaryIO

import numpy as np

from jhgnn.data.progress import Advance, silent
from jhgnn.errors import InputError

BLOCK_BYTES = 1 << 24


def read_table(
    stream: BinaryIO,
    where: str,
    *,
    columns: int | None = None,
    separator: bytes = b"\t",
    dtype: Any = np.float64,
    advance: Advance = silent,
) -> np.ndarray:
    """Reads rows of `columns` numbers (None: as many as the first row has) as `dtype` `[num_rows, columns]`.

    Empty rows are skipped; a file without rows gives `[0, columns or 0]`.

    Raises:
        InputError: a row has too few or too many fields, or a field that is not a number of this type; `where` and
            the row, counted from 1, are named.
    """
    blocks: list[np.ndarray] = []
    first_row, carried = 1, b""
    while True:
        read = stream.read(BLOCK_BYTES)
        advance(len(read))
        data = carried + read
        end = data.rfind(b"\n") + 1 if read else len(data)
        block, carried = data[:end], data[end:]
        if block.strip():
            if columns is None:
                columns = block.lstrip().split(b"\n", 1)[0].count(separator) + 1
            blocks.append(_parse_block(block, where, first_row, columns, separator, dtype))
        first_row += block.count(b"\n")
        if not read:
            break
    return np.concatenate(blocks) if blocks else np.zeros((0, columns or 0), dtype)


def numbers_in(text: bytes, dtype: Any, separator: str) -> np.ndarray:
    """Numbers up to the first thing that is none: callers compare how many there are with how many there must be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's notice that it stopped early
        try:
            return np.fromstring(text, dtype, sep=separator)
        except ValueError:
            return np.zeros(0, dtype)


def whole_numbers(values: np.ndarray, where: str, what: str) -> np.ndarray:
    """Float `[num_rows]` as int64.

    Raises:
        InputError: a value is not a whole number; its row is named.
    """
    whole = np.rint(values)
    bad = ~(np.abs(values) < 2.0**53) | (whole != values)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{where} row {row + 1}: {what} {values[row]} is not a whole number")
    return whole.astype(np.int64)


def _parse_block(block: bytes, where: str, first_row: int, columns: int, separator: bytes, dtype: Any) -> np.ndarray:
    clean = block.replace(b"\r", b"") if b"\r" in block else block
    if not clean.endswith(b"\n"):
        clean += b"\n"
    if b" " not in clean or separator == b" ":
        characters = np.frombuffer(clean, np.uint8)
        ends = np.flatnonzero(characters == 10)
        separators = np.flatnonzero(characters == separator[0])
        per_row = np.diff(np.searchsorted(separators, ends), prepend=0)
        if (per_row == columns - 1).all():
            values = numbers_in(clean.replace(separator, b" "), dtype, " ")
            if values.size == len(ends) * columns:
                return values.reshape(len(ends), columns)
    return _parse_rows(block, where, first_row, columns, separator, dtype)


def _parse_rows(block: bytes, where: str, first_row: int, columns: int, separator: bytes, dtype: Any) -> np.ndarray:
    rows = []
    number = int if np.dtype(dtype).kind in "iu" else float
    for row, line in enumerate(block.split(b"\n"), start=first_row):
        if not line.strip():
            continue
        fields = line.strip(b"\r\n").split(separator)
        if len(fields) != columns:
            raise InputError(f"{where} row {row} has {len(fields)} fields; need {columns}")
        values = []
        for field in fields:
            try:
                if b"_" in field:
                    raise ValueError
                values.append(number(field))
            except ValueError:
                kind = "a whole number" if number is int else "a number"
                raise InputError(f"{where} row {row}: {field.decode(errors='replace')!r} is not {kind}") from None
        rows.append(values)
    try:
        return np.array(rows, dtype).reshape(len(rows), columns)
    except OverflowError:
        raise InputError(f"{where} rows {first_row} on: a number is too large") from None
