"""Columns as numbers, as words, or as lists of words, whatever type the table holds them in."""

import re
from collections.abc import Callable

import numpy as np

from jhgnn.data.number_table import numbers_in
from jhgnn.data.tables.column import Column, Lists, kind_of
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts, integers

Place = Callable[[int], str]
_TRUTH = {"true": 1.0, "false": 0.0}
_BRACKETS_AND_COMMAS = re.compile(rb"[\[\](){},;|\s]+")
MAX_NUMBER_BYTES = 64


def numbers(column: Column, name: str, place: Place) -> np.ndarray:
    """Float64 `[num_rows]`, NaN where there is no value; true is 1 and false is 0.

    Raises:
        InputError: a value is not a finite number; its row and the column are named.
    """
    values = column.values
    if isinstance(values, Lists) or (isinstance(values, np.ndarray) and values.dtype.kind == "M"):
        raise InputError(f"{_first_place(column, place)}: column {name!r} holds {kind_of(values)}; need numbers")
    if isinstance(values, Texts):
        present = np.flatnonzero(~column.missing)
        result = np.full(len(values), np.nan)
        result[present] = _parsed(values.take(present), name, lambda row: place(int(present[row])))
    else:
        result = np.where(column.missing, np.nan, values.astype(np.float64))
    bad = ~np.isfinite(result) & ~column.missing
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{place(row)}: {name} is {result[row]}; need a finite number")
    return result


def words(column: Column, name: str, place: Place) -> Texts:
    """Texts `[num_rows]`; numbers as they are written, without a point where they are whole.

    Raises:
        InputError: the column holds lists or times.
    """
    values = column.values
    if isinstance(values, Texts):
        return values
    if isinstance(values, Lists) or values.dtype.kind == "M":
        raise InputError(
            f"{_first_place(column, place)}: column {name!r} holds {kind_of(values)}; need text or numbers"
        )
    if values.dtype.kind == "b":
        return Texts.from_strings(["true" if value else "false" for value in values.tolist()])
    if values.dtype.kind == "f":
        return Texts.from_strings(map(_written, values.tolist()))
    return Texts.from_integers(values)


def word_lists(column: Column, separator: str, name: str, place: Place) -> tuple[np.ndarray, Texts]:
    """Several words a row: the row of each, int64 `[num_words]` ascending, and the words; text is cut at `separator`.

    Raises:
        InputError: as `words`.
    """
    values = column.values
    if isinstance(values, Lists):
        counts = np.where(column.missing, 0, np.diff(values.offsets))
        inner = Column(values.values, np.zeros(len(values.values), bool))
        texts = words(inner, name, lambda item: place(int(np.searchsorted(values.offsets, item, side="right")) - 1))
        chosen = np.repeat(~column.missing, np.diff(values.offsets))
        return np.repeat(np.arange(len(counts)), counts), texts.take(np.flatnonzero(chosen))
    rows, parts = [], []
    cut = separator.encode()
    for row, (text, gone) in enumerate(zip(words(column, name, place).encoded(), column.missing.tolist(), strict=True)):
        if not gone:
            found = [part for each in text.split(cut) if (part := each.strip())]
            rows += [row] * len(found)
            parts += found
    return np.array(rows, np.int64), Texts.from_encoded(parts)


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def vectors(column: Column, width: int, name: str, place: Place) -> tuple[np.ndarray, int]:
    """A vector a row: (float `[num_rows, width]`, NaN in rows without one; width). A width of 0 is found: the first's.

    Text is numbers between spaces, commas or semicolons, with or without brackets.

    Raises:
        InputError: a vector has another width, or an item that is no finite number; its row is named.
    """
    values = column.values
    if column.missing.all():
        counts, flat = np.zeros(len(column), np.int64), np.zeros(0)
    elif isinstance(values, Lists):
        if isinstance(values.values, Texts) or values.values.dtype.kind == "M":
            kind = kind_of(values.values)
            raise InputError(f"{_first_place(column, place)}: column {name!r} holds lists of {kind}; need numbers")
        counts, flat = np.diff(values.offsets), values.values
    elif isinstance(values, Texts):
        present = [
            numbers_in(b"" if gone else _BRACKETS_AND_COMMAS.sub(b" ", text).strip(), np.float64, " ")
            for text, gone in zip(values.encoded(), column.missing.tolist(), strict=True)
        ]
        counts = np.array([len(row) for row in present], np.int64)
        _check_all_read(values, counts, column, name, place)
        flat = np.concatenate(present) if present else np.zeros(0)
    else:
        raise InputError(
            f"{_first_place(column, place)}: column {name!r} holds {kind_of(values)}; need lists of numbers"
        )
    filled = np.flatnonzero(~column.missing)
    width = width or (int(counts[filled[0]]) if len(filled) else 0)
    wrong = filled[counts[filled] != width]
    if len(wrong):
        row = int(wrong[0])
        raise InputError(f"{place(row)}: {name} has {counts[row]} numbers; need {width}")
    result = np.full((len(column), width), np.nan, flat.dtype if flat.dtype.kind == "f" else np.float64)
    result[filled] = flat[np.repeat(~column.missing, counts)].reshape(len(filled), width)
    finite = np.isfinite(result[filled]).all(axis=1)
    if not finite.all():
        row = int(filled[np.argmin(finite)])
        odd = result[row][~np.isfinite(result[row])][0]
        raise InputError(f"{place(row)}: {name} holds {odd}; need finite numbers")
    return result, width


def _check_all_read(texts: Texts, counts: np.ndarray, column: Column, name: str, place: Place) -> None:
    for row, (text, count, gone) in enumerate(
        zip(texts.encoded(), counts.tolist(), column.missing.tolist(), strict=True)
    ):
        parts = [] if gone else _BRACKETS_AND_COMMAS.sub(b" ", text).split()
        if len(parts) != count:
            odd = next((part for part in parts if not _is_number(part)), parts[0]).decode()
            raise InputError(f"{place(row)}: {name} holds {odd!r}, which is not a number")


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return b"_" not in text


def _parsed(texts: Texts, name: str, place: Place) -> np.ndarray:
    if not len(texts):
        return np.zeros(0)
    if int(texts.lengths.max()) <= MAX_NUMBER_BYTES:
        width = int(texts.lengths.max()) + 1
        characters = texts.padded(width)
        has_spaces = bool((characters == ord(" ")).any())  # within a field, they would make two numbers of it
        characters[characters == 0] = ord(" ")
        characters[:, -1] = ord(" ")
        result = numbers_in(characters.tobytes(), np.float64, " ")
        if len(result) == len(texts) and not has_spaces:
            return result
    result = np.zeros(len(texts))
    for row, text in enumerate(texts.encoded()):
        shown = text.decode()
        try:
            if "_" in shown:
                raise ValueError
            result[row] = _TRUTH[shown.lower()] if shown.lower() in _TRUTH else float(shown)
        except ValueError:
            raise InputError(f"{place(row)}: {name} is {shown!r}, which is not a number") from None
    return result


def whole_numbers(column: Column) -> np.ndarray | None:
    """Int64 `[num_rows]` where every value that is there is a whole number as it is written; None otherwise."""
    values = column.values
    if isinstance(values, Texts):
        present = np.flatnonzero(~column.missing[:1])  # the first tells of most columns that they are none
        if not integers(values.take(present))[1].all():
            return None
        result, whole = integers(values)
        return result if (whole | column.missing).all() else None
    if isinstance(values, Lists):
        return None
    if values.dtype.kind == "i":
        return values
    if values.dtype.kind == "f":  # what pandas makes of integers where some are missing
        present = values[~column.missing]
        if (np.abs(present) < 2**53).all() and (np.rint(present) == present).all():
            return np.where(column.missing, 0, values).astype(np.int64)
    return None


def _first_place(column: Column, place: Place) -> str:
    return place(0) if len(column) else "the table"
