"""Timestamps: whole numbers as they are, or dates and date-times as microseconds since 1970-01-01 UTC."""

import datetime
import warnings

import numpy as np

from jhgnn.data.tables.column import Column, kind_of
from jhgnn.data.tables.schema import Moment
from jhgnn.data.tables.values import Place, whole_numbers
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts, integers

MICROSECONDS = "us"


class TimeUnit:
    """The one unit of all times of a graph, which the first column read decides: "" (whole numbers) or "us"."""

    def __init__(self) -> None:
        self.unit, self._first = "", ""

    def read(self, column: Column, name: str, place: Place) -> np.ndarray:
        """Times of a column, int64 `[num_rows]`.

        Raises:
            InputError: a time is missing, or is neither a whole number nor a date or date-time of ISO 8601; or its
                unit is another one than that of the times before it. The row is named.
        """
        if not len(column):
            return np.zeros(0, np.int64)
        if column.missing.any():
            raise InputError(
                f"{place(int(np.argmax(column.missing)))}: no time in column {name!r}; need one in each row"
            )
        whole = whole_numbers(column)
        if whole is None and isinstance(column.values, Texts):
            _refuse_numbers_among_dates(column.values, name, place)
        unit = "" if whole is not None else MICROSECONDS
        times = whole if whole is not None else _dates(column, name, place)
        if not self._first:
            self.unit, self._first = unit, f"{place(0)}, {name}"
        elif unit != self.unit:
            kinds = {"": "a whole number", MICROSECONDS: "a date"}
            raise InputError(
                f"{place(0)}: {name} is {kinds[unit]}, but {self._first} is {kinds[self.unit]}; times are compared, so"
                " all must be whole numbers, or all dates"
            )
        return times

    def moment(self, moment: Moment, where: str) -> int:
        """A time of the schema in the unit of the graph's.

        Raises:
            InputError: it is a date and the graph's times are numbers, or the other way round.
        """
        if self.unit == "":
            if not isinstance(moment, int):
                raise InputError(f"{where} is {moment}, but the times are whole numbers, such as in {self._first}")
            return moment
        try:
            if isinstance(moment, int):
                raise ValueError
            return _microseconds(moment if isinstance(moment, str) else moment.isoformat())
        except ValueError:
            raise InputError(f"{where} is {moment!r}; need a date or date-time, as in {self._first}") from None


def shown(time: int, unit: str) -> str:
    """A time for people: a date, with the time of day where it has one; or the number."""
    if unit != MICROSECONDS:
        return str(time)
    return str(np.datetime64(time, "us")).removesuffix(".000000").removesuffix("T00:00:00")


def _refuse_numbers_among_dates(values: Texts, name: str, place: Place) -> None:
    """A year is a date to NumPy, but a whole number in a column of its own; that must not depend on its neighbours."""
    number = integers(values)[1]
    if number.any():
        row, other = int(np.argmax(number)), int(np.argmin(number))
        raise InputError(
            f"{place(row)}: {name} is the whole number {values[row]}, but {values[other]!r} in {place(other)};"
            " times are all whole numbers, or all dates"
        )


def _dates(column: Column, name: str, place: Place) -> np.ndarray:
    values = column.values
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return values.astype(np.int64)
    if not isinstance(values, Texts):
        raise InputError(
            f"{place(0)}: column {name!r} holds {kind_of(values)}; need whole numbers, dates or date-times"
        )
    texts = [text.decode() for text in values.encoded()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of time zones, which it does not know
        try:
            # "NaT" and "now" are dates to NumPy, and years of any length, which it counts beyond 64 bits.
            if all(text[:4].isdigit() and text[4:5] in ("-", "") for text in texts):
                return np.array(texts, "datetime64[us]").astype(np.int64)
        except (ValueError, UserWarning, DeprecationWarning):
            pass
    times = np.zeros(len(texts), np.int64)
    for row, text in enumerate(texts):
        try:
            times[row] = _microseconds(text)
        except ValueError:
            raise InputError(
                f"{place(row)}: {name} is {text!r}; need a whole number, or a date or date-time such as 2024-05-31 or"
                " 2024-05-31T18:00:00Z"
            ) from None
    return times


def _microseconds(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
