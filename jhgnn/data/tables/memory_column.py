"""Columns of tables in memory without Arrow: pandas frames, and mappings of names to arrays or lists."""

import datetime
import decimal
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from jhgnn.data.tables.column import Column, Lists, Values, without_words
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts


def column_of(data: Any, where: str, missing_words: tuple[str, ...]) -> Column:
    """Rows of a column: a NumPy array, a list, or a pandas series; `where` names it.

    Raises:
        InputError: it holds something that is no number, string, time, or list of numbers or strings.
    """
    if hasattr(data, "iloc"):
        data = _of_series(data)
    if isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind in "iufb":
        offsets = np.arange(len(data) + 1, dtype=np.int64) * data.shape[1]
        return Column(Lists(np.ascontiguousarray(data).reshape(-1), offsets), np.zeros(len(data), bool))
    if isinstance(data, np.ndarray) and data.dtype.kind in "iufbM" and data.ndim == 1:
        return _of_array(data, where)
    rows = data.tolist() if isinstance(data, np.ndarray) else list(data)
    column = _of_objects(rows, where)
    if isinstance(column.values, Texts):
        return Column(column.values, column.missing | without_words(column.values, missing_words).missing)
    return column


def _of_series(series: Any) -> Any:
    """A pandas series as an array of a plain NumPy type where it has one, else as objects."""
    kind = series.dtype
    if getattr(kind, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        kind = series.dtype
    return series.to_numpy() if isinstance(kind, np.dtype) else series.astype(object).to_numpy()


def _of_array(array: np.ndarray, where: str) -> Column:
    if array.dtype.kind == "M":
        return Column(array.astype("datetime64[us]"), np.isnat(array))
    if array.dtype.kind == "f":
        values = array.astype(np.float64)
        return Column(values, np.isnan(values))
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise InputError(f"{where} holds {array.max()}; need integers below 2**63")
    return Column(array if array.dtype.kind == "b" else array.astype(np.int64), np.zeros(len(array), bool))


def _of_objects(rows: list[Any], where: str) -> Column:
    missing = np.fromiter(map(_is_missing, rows), bool, len(rows))
    present = [row for row, gone in zip(rows, missing.tolist(), strict=True) if not gone]
    kinds = {_kind(row) for row in present}
    values: Values
    if kinds <= {"text", "integer"} and "text" in kinds:  # keys of two sorts: integers as they are written
        values = Texts.from_strings("" if gone else str(row) for row, gone in zip(rows, missing.tolist(), strict=True))
        return Column(values, missing)
    if kinds == {"truth"}:
        values = np.zeros(len(rows), bool)
        values[~missing] = present
    elif kinds == {"integer"}:
        values = np.zeros(len(rows), np.int64)
        try:
            values[~missing] = present
        except OverflowError:
            raise InputError(f"{where} holds an integer beyond 64 bits") from None
    elif kinds <= {"truth", "integer", "number"}:
        values = np.full(len(rows), np.nan)
        values[~missing] = [float(row) for row in present]
        return Column(values, missing | np.isnan(values))
    elif kinds == {"time"}:
        values = np.zeros(len(rows), "datetime64[us]")
        values[~missing] = [_naive(row) for row in present]
    elif kinds == {"list"}:
        values = _lists(rows, missing, where)
    else:
        odd = next((row for row in present if _kind(row) == "other"), present[0])
        what = f"{odd!r} of type {type(odd).__name__}" if "other" in kinds else f"{' and '.join(sorted(kinds))} values"
        raise InputError(f"{where} holds {what}; need numbers, strings, times, or lists of numbers or strings")
    return Column(values, missing)


def _lists(rows: list[Any], missing: np.ndarray, where: str) -> Lists:
    lists: list[Sequence[Any]] = [() if gone else row for row, gone in zip(rows, missing.tolist(), strict=True)]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in lists], dtype=np.int64)])
    flat = [item for row in lists for item in (row.tolist() if isinstance(row, np.ndarray) else row)]
    inner = _of_objects(flat, where)
    if isinstance(inner.values, Lists):
        raise InputError(f"{where} holds lists of lists; need lists of numbers or strings")
    if inner.missing.any() and not (isinstance(inner.values, np.ndarray) and inner.values.dtype.kind == "f"):
        raise InputError(f"{where} holds lists with missing items; leave such items out")
    return Lists(inner.values, offsets)


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "truth"
    if isinstance(value, numbers.Integral):
        return "integer"
    if isinstance(value, numbers.Real | decimal.Decimal):
        return "number"
    if isinstance(value, datetime.date | np.datetime64):
        return "time"
    if isinstance(value, list | tuple | np.ndarray):
        return "list"
    return "other"


def _naive(value: Any) -> np.datetime64:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(value, "us")
