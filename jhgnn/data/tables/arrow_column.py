"""Arrow arrays as columns, and Parquet files a batch at a time; only this file imports pyarrow, where it is needed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.data.tables.column import Column, Lists, Values, without_words
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts

BATCH_ROWS, BATCH_ROWS_OF_LISTS = 1 << 18, 1 << 13


def pyarrow_for(what: str) -> Any:
    """The module pyarrow.

    Raises:
        InputError: it is not installed; `what` needs it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{what}: Parquet needs pyarrow, which is not installed; run: python -m pip install 'jhgnn[tables]', or"
            " write the table as CSV"
        ) from None
    return pyarrow


class ParquetReader:
    """One Parquet file; `where` is how messages call it.

    Raises:
        InputError: pyarrow is missing, or the file is damaged or no Parquet file.
    """

    def __init__(self, path: Path, where: str) -> None:
        self._arrow, self._where = pyarrow_for(where), where
        try:
            self._file = self._arrow.parquet.ParquetFile(path)
        except (OSError, self._arrow.ArrowException) as error:
            raise self._damaged(error) from None
        self.names: list[str] = list(self._file.schema_arrow.names)
        self.num_rows: int = self._file.metadata.num_rows

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns."""
        schema = self._file.schema_arrow
        has_lists = any(self._arrow.types.is_nested(schema.field(name).type) for name in names)
        batch_rows = BATCH_ROWS_OF_LISTS if has_lists else BATCH_ROWS
        try:
            for group in range(self._file.num_row_groups):  # one call for all keeps every group that it has read
                yield from self._file.iter_batches(batch_rows, row_groups=[group], columns=list(names))
        except (OSError, self._arrow.ArrowException) as error:
            raise self._damaged(error) from None

    def close(self) -> None:
        self._file.close()

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self._where} is no Parquet file, or damaged or truncated ({error}); write it again")


def batches_of(table: Any, names: Sequence[str]) -> Iterator[Any]:
    """Record batches of an Arrow table or record batch in memory."""
    if hasattr(table, "to_batches"):
        yield from table.select(list(names)).to_batches(max_chunksize=BATCH_ROWS)
    else:
        yield table.select(list(names))


def column_of(array: Any, where: str, missing_words: tuple[str, ...], first: int = 0) -> Column:
    """An Arrow array of numbers, truth values, strings, times, or lists of numbers or strings; `where` names it.

    `first` is the row of the table that the array starts at.

    Raises:
        InputError: its type is another one, an integer is beyond 64 bits with a sign, a time is beyond those of
            microseconds in 64 bits, or a list of strings or whole numbers has a missing item.
    """
    import pyarrow as arrow

    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    missing = np.asarray(array.is_null(nan_is_null=arrow.types.is_floating(array.type)).to_numpy(zero_copy_only=False))
    values = _values(array, where)
    if isinstance(values, Lists):
        _refuse_missing_items(array, values, missing, where, first)
    if isinstance(values, Texts):
        words = without_words(values, missing_words)
        return Column(values, words.missing | missing)
    return Column(values, missing)


def _values(array: Any, where: str) -> Values:
    import pyarrow as arrow

    kind, types = array.type, arrow.types
    try:
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return _texts(array.cast(arrow.large_string()))
        if types.is_boolean(kind):
            return array.fill_null(False).to_numpy(zero_copy_only=False)
        if types.is_integer(kind):
            return array.fill_null(0).cast(arrow.int64()).to_numpy()
        if types.is_null(kind):
            return np.zeros(len(array))
        if types.is_floating(kind) or types.is_decimal(kind):
            return array.cast(arrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        if types.is_timestamp(kind) or types.is_date(kind):
            finer = types.is_timestamp(kind) and kind.unit == "ns"  # is cut to microseconds; others must not overflow
            micros = array.cast(arrow.timestamp("us", getattr(kind, "tz", None)), safe=not finer).cast(arrow.int64())
            return micros.fill_null(0).to_numpy().astype("datetime64[us]")
        if types.is_list(kind) or types.is_large_list(kind):
            offsets = array.offsets.to_numpy().astype(np.int64)
            inner = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
            return Lists(_inner(inner, where), offsets - offsets[0])
        if types.is_fixed_size_list(kind):
            size = kind.list_size
            inner = array.values.slice(array.offset * size, len(array) * size)
            return Lists(_inner(inner, where), np.arange(len(array) + 1, dtype=np.int64) * size)
    except arrow.ArrowInvalid as error:
        raise InputError(f"{where}: {error}") from None
    raise InputError(f"{where} is of the type {kind}; need numbers, strings, times, or lists of numbers or strings")


def _refuse_missing_items(array: Any, lists: Lists, missing: np.ndarray, where: str, first: int) -> None:
    """Raises InputError for a row with an item that is neither a number nor a word; numbers with a point are NaN."""
    if isinstance(lists.values, np.ndarray) and lists.values.dtype.kind == "f":
        return  # which is refused with its row where vectors are read
    row_of = np.repeat(np.arange(len(missing)), np.diff(lists.offsets))
    items = array.flatten()  # without what lies under missing rows
    if items.null_count:
        rows = row_of[~missing[row_of]]
        row = int(rows[np.argmax(items.is_null().to_numpy(zero_copy_only=False))])
        raise InputError(f"{where}, row {first + row}: the list has a missing item; leave such items out")


def _inner(array: Any, where: str) -> Texts | np.ndarray:
    import pyarrow as arrow

    if arrow.types.is_floating(array.type):  # not widened: embeddings are large
        return array.fill_null(np.nan).to_numpy(zero_copy_only=False)
    values = _values(array, where)
    if isinstance(values, Lists):
        raise InputError(f"{where} holds lists of lists; need lists of numbers or strings")
    return values


def _texts(array: Any) -> Texts:
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if offsets is not None else np.zeros(1)
    empty = np.zeros(0, np.uint8)
    characters = np.frombuffer(data, np.uint8) if data is not None and data.size else empty
    return Texts(characters, starts[:-1].astype(np.int64), np.diff(starts).astype(np.int64))
