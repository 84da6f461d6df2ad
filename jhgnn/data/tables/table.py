"""Tables: CSV and Parquet files, pandas frames, Arrow tables and mappings of columns, all read in chunks of columns."""

import contextlib
import functools
import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from jhgnn.config.recipe import nearest
from jhgnn.data.progress import reading
from jhgnn.data.tables import arrow_column, memory_column
from jhgnn.data.tables.column import Chunk
from jhgnn.data.tables.csv_file import CsvReader, Dialect
from jhgnn.errors import InputError

CSV_SUFFIXES, PARQUET_SUFFIXES = (".csv", ".tsv", ".tab", ".txt"), (".parquet", ".pq")
ROWS_IN_MEMORY = 1 << 18


class Table(Protocol):
    """A table; `shown` is what messages call it."""

    shown: str

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """These columns, from the first row to the last; every call begins anew.

        Raises:
            InputError: a column is missing or stands twice, or a file cannot be read.
        """
        ...

    def names(self) -> list[str]:
        """All columns (of the first file)."""
        ...


class FileTable:
    """CSV or Parquet files with the same columns, one after another."""

    def __init__(self, paths: Sequence[Path], dialect: Dialect, progress: bool) -> None:
        self._paths, self._dialect, self._progress = paths, dialect, progress
        self.shown = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"

    def names(self) -> list[str]:
        with self._opened(self._paths[0], progress=False) as reader:
            return list(reader.header() if isinstance(reader, CsvReader) else reader.names)

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        for path in self._paths:
            with self._opened(path, self._progress) as reader:
                if isinstance(reader, CsvReader):
                    yield from reader.chunks(_positions(reader.header(), names, str(path)))
                else:
                    yield from self._parquet_chunks(reader, path, names)

    def _parquet_chunks(self, reader: arrow_column.ParquetReader, path: Path, names: Sequence[str]) -> Iterator[Chunk]:
        _positions(reader.names, names, str(path))
        with reading(path.name, os.path.getsize(path), self._progress) as advance:
            bytes_of_row, first = os.path.getsize(path) / max(1, reader.num_rows), 0
            for batch in reader.batches(names):
                yield _arrow_chunk(batch, str(path), names, self._dialect.missing, first)
                first += batch.num_rows
                advance(int(bytes_of_row * batch.num_rows))

    @contextlib.contextmanager
    def _opened(self, path: Path, progress: bool) -> Iterator[CsvReader | arrow_column.ParquetReader]:
        suffixes = [suffix.lower() for suffix in path.suffixes]
        packed = suffixes[-1:] == [".gz"]
        kind = suffixes[-2:-1] if packed else suffixes[-1:]
        if not path.is_file():
            what = "is a folder, not a file" if path.is_dir() else "is no regular file"
            if not path.exists():
                what = "does not exist"
            raise InputError(f"{path} {what}; need a CSV or Parquet file")
        if kind and kind[0] in PARQUET_SUFFIXES and not packed:
            parquet = arrow_column.ParquetReader(path, str(path))
            with contextlib.closing(parquet):
                yield parquet
        elif kind and kind[0] in CSV_SUFFIXES:
            with self._text(path, packed, progress) as reader:
                yield reader
        else:
            known = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
            raise InputError(f"{path} has the ending {path.suffix!r}; need one of {known}, or CSV with .gz behind it")

    @contextlib.contextmanager
    def _text(self, path: Path, packed: bool, progress: bool) -> Iterator[CsvReader]:
        # A gzip file does not say reliably how large it unpacks; text shrinks to about a quarter.
        size = os.path.getsize(path) * (4 if packed else 1)
        try:
            with contextlib.ExitStack() as stack:
                stream: BinaryIO = stack.enter_context(path.open("rb"))
                if packed:
                    stream = cast(BinaryIO, stack.enter_context(gzip.open(stream)))
                advance = stack.enter_context(reading(path.name, size, progress))
                yield CsvReader(stream, str(path), self._dialect, advance)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path} is damaged or truncated ({error}); get the file again") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


class MemoryTable:
    """A pandas frame, an Arrow table or record batch, or a mapping of names to arrays or lists of one length."""

    def __init__(self, table: Any, shown: str, missing: tuple[str, ...]) -> None:
        self._table, self._missing, self.shown = table, missing, shown
        self._is_arrow = hasattr(table, "schema") and hasattr(table, "select")
        if not self._is_arrow and not isinstance(table, Mapping) and not hasattr(table, "iloc"):
            raise InputError(
                f"{shown} is a {type(table).__name__}; need a pandas frame, an Arrow table, or a mapping of names to"
                " columns"
            )

    def names(self) -> list[str]:
        if self._is_arrow:
            return list(self._table.schema.names)
        return list(self._table.columns) if hasattr(self._table, "iloc") else list(self._table)

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        _positions(self.names(), names, self.shown)
        first = 0
        if self._is_arrow:
            for batch in arrow_column.batches_of(self._table, names):
                yield _arrow_chunk(batch, self.shown, names, self._missing, first)
                first += batch.num_rows
            return
        columns = {name: self._table[name] for name in names}
        lengths = {name: len(column) for name, column in columns.items()}
        num_rows = max(lengths.values(), default=0)
        for name, length in lengths.items():
            if length != num_rows:
                raise InputError(f"{self.shown}: column {name!r} has {length} rows; another one has {num_rows}")
        for first in range(0, num_rows, ROWS_IN_MEMORY):
            rows = slice(first, min(num_rows, first + ROWS_IN_MEMORY))
            parts = {
                name: memory_column.column_of(
                    column.iloc[rows] if hasattr(column, "iloc") else column[rows],
                    f"{self.shown} column {name!r}",
                    self._missing,
                )
                for name, column in columns.items()
            }
            yield Chunk(parts, rows.stop - rows.start, functools.partial(_row, self.shown, first))


def _arrow_chunk(batch: Any, shown: str, names: Sequence[str], missing: tuple[str, ...], first: int) -> Chunk:
    columns = {
        name: arrow_column.column_of(batch.column(name), f"{shown} column {name!r}", missing, first) for name in names
    }
    return Chunk(columns, batch.num_rows, functools.partial(_row, shown, first))


def _row(shown: str, first: int, row: int) -> str:
    return f"{shown} row {first + row}"


def _positions(found: Sequence[str], wanted: Sequence[str], where: str) -> dict[str, int]:
    """Where the wanted columns stand."""
    positions = {}
    for name in wanted:
        if name not in found:
            raise InputError(f"{where} has no column {name!r}; it has {_listed(found)}{_hint(name, found)}")
        if list(found).count(name) > 1:
            raise InputError(f"{where} has {list(found).count(name)} columns {name!r}; give each a name of its own")
        positions[name] = list(found).index(name)
    return positions


def _listed(names: Sequence[str]) -> str:
    """Names of columns for a message; in quotes where white space around one would not be seen."""
    shown = [name if name == name.strip() else repr(name) for name in map(str, names[:20])]
    return ", ".join(shown) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"


def _hint(name: str, found: Sequence[str]) -> str:
    """What a column that is not there may be due to."""
    if len(found) == 1:
        for separator in ";\t|,":
            if name in str(found[0]).split(separator) and name != found[0]:
                return f"; did you mean separator = {separator!r}?"
    for each in map(str, found):
        if each.strip() == name:
            return f"; take the white space out of {each!r}"
    near = nearest(name, [str(each) for each in found])
    return near if near.startswith("; did") else ""
