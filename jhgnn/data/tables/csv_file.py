"""CSV, a block at a time, in NumPy alone: fields are found by the positions of separators, line ends and quotes.

The dialect is that of RFC 4180: a field may stand in double quotes, where separators and line ends are part of it and a
quote is written twice; lines end in LF or CR LF; text is UTF-8. Empty lines are skipped.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import numpy as np

from jhgnn.data.progress import Advance, silent
from jhgnn.data.tables.column import Chunk, without_words
from jhgnn.errors import InputError
from jhgnn.graph.texts import Texts

BLOCK_BYTES = 1 << 24
MAX_RECORD_BYTES = 1 << 26
_OTHER_FORMATS = {
    b"PAR1": "is a Parquet file; let its name end in .parquet",
    b"\x1f\x8b": "is packed by gzip; let its name end in .gz",
    b"PK\x03\x04": "is a zip archive or a spreadsheet; save the table as CSV",
    b"\xff\xfe": "is UTF-16 text; save the file as UTF-8",
    b"\xfe\xff": "is UTF-16 text; save the file as UTF-8",
}
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How CSV is written: `header` names the columns where no first line does, `missing` are the words for no value."""

    separator: str = ","
    quotes: bool = True
    header: tuple[str, ...] = ()
    missing: tuple[str, ...] = ("",)


@dataclasses.dataclass(frozen=True, eq=False)
class _Records:
    """Records of a block: `starts` and `ends` int64 `[num_records, num_fields]`, `lines` `[num_records]`."""

    starts: np.ndarray
    ends: np.ndarray
    lines: np.ndarray


class CsvReader:
    """Reads one CSV file from a stream.

    Args:
        stream: of bytes, decompressed.
        where: how messages call the file.
        dialect: how it is written.
        advance: told of the bytes read.
    """

    def __init__(self, stream: BinaryIO, where: str, dialect: Dialect, advance: Advance = silent) -> None:
        self._stream, self._where, self._dialect, self._advance = stream, where, dialect, advance
        self._num_fields = len(dialect.header)  # 0: as many as the first row has
        self._blocks: Iterator[tuple[bytes, _Records]] = self._whole_records()

    def header(self) -> tuple[str, ...]:
        """Names of the columns, to be asked for before any chunk.

        Raises:
            InputError: the file is empty, or its first block is wrong in a way that `chunks` says.
        """
        if self._dialect.header:
            return self._dialect.header
        block = next(self._blocks, None)
        if block is None:
            raise InputError(f"{self._where} is empty; need a first line with the names of the columns")
        data, records = block
        names = self._texts(data, records, range(self._num_fields), rows=slice(0, 1))
        if any("\r" in name[0] for name in names):
            raise InputError(f"{self._where} ends its lines in carriage returns alone; need line feeds (LF or CR LF)")
        rest = data, _Records(records.starts[1:], records.ends[1:], records.lines[1:])
        self._blocks = itertools.chain([rest], self._blocks)
        return tuple(name[0] for name in names)

    def chunks(self, wanted: Mapping[str, int]) -> Iterator[Chunk]:
        """The chunks, of the columns at these positions: name -> position.

        Raises:
            InputError: a record has too few or too many fields, quotes are wrong, or text is not UTF-8; file and line
                are named.
        """
        for data, records in self._blocks:
            texts = self._texts(data, records, wanted.values(), rows=slice(None))
            columns = {
                name: without_words(text, self._dialect.missing) for name, text in zip(wanted, texts, strict=True)
            }
            yield Chunk(columns, len(records.lines), functools.partial(self._place, records.lines))

    def _place(self, lines: np.ndarray, row: int) -> str:
        return f"{self._where} line {lines[row]}"

    def _whole_records(self) -> Iterator[tuple[bytes, _Records]]:
        """Blocks of whole records, all of as many fields."""
        carried, line = b"", 1
        while True:
            read = self._stream.read(BLOCK_BYTES)
            self._advance(len(read))
            data = carried + read
            if line == 1:
                self._refuse_other_formats(data)
                data = data.removeprefix(b"\xef\xbb\xbf")
            if not read and data and not data.endswith(b"\n"):
                data += b"\n"
            characters = np.frombuffer(data, np.uint8)
            newlines = np.flatnonzero(characters == _NEWLINE)
            separators = np.flatnonzero(characters == ord(self._dialect.separator))
            ends, quotes = newlines, np.zeros(0, np.int64)
            if self._dialect.quotes and b'"' in data:  # outside of quotes: an even number of them stands before
                quotes = np.flatnonzero(characters == _QUOTE)
                ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
                separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
            used = int(ends[-1]) + 1 if len(ends) else 0
            carried = data[used:]
            if carried and (not read or len(carried) > MAX_RECORD_BYTES):
                at = line + int(np.searchsorted(newlines, used))
                raise InputError(
                    f"{self._where} line {at}: a quote is opened that is never closed; close it, or say quotes = false"
                )
            if used:
                self._check_text(data, used, line, newlines)
                records = self._records(characters, newlines, ends, separators, line)
                if records is not None:
                    yield data, records
            line += int(np.searchsorted(newlines, used))
            if not read:
                return

    def _refuse_other_formats(self, data: bytes) -> None:
        """Says what a file is that only its name calls CSV."""
        for start, what in _OTHER_FORMATS.items():
            if data.startswith(start):
                raise InputError(f"{self._where} {what}")

    def _check_text(self, data: bytes, used: int, line: int, newlines: np.ndarray) -> None:
        bad, what = data.find(b"\0", 0, used), "holds a NUL byte, as no text does; write the file again"
        if not data.isascii():
            try:
                data[:used].decode()
            except UnicodeDecodeError as error:
                bad, what = error.start, "is not UTF-8 text; save the file in that encoding"
        if bad >= 0:
            raise InputError(f"{self._where} line {line + int(np.searchsorted(newlines, bad))} {what}")

    def _records(
        self, characters: np.ndarray, newlines: np.ndarray, ends: np.ndarray, separators: np.ndarray, line: int
    ) -> _Records | None:
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        lines = line + (np.arange(len(ends)) if len(ends) == len(newlines) else np.searchsorted(newlines, starts))
        stops = ends - (characters[ends - 1] == _RETURN) * (ends > starts)
        filled = stops > starts
        if not filled.any():
            return None
        if not filled.all():
            starts, stops, lines = starts[filled], stops[filled], lines[filled]
        separators = separators[: np.searchsorted(separators, stops[-1])]
        if not self._num_fields:
            self._num_fields = int(np.searchsorted(separators, stops[0])) + 1
        if len(separators) == len(starts) * (self._num_fields - 1):
            table = separators.reshape(len(starts), -1)
            if not len(separators) or ((table[:, 0] >= starts) & (table[:, -1] < stops)).all():
                return _Records(np.column_stack([starts, table + 1]), np.column_stack([table, stops]), lines)
        raise self._wrong_width(starts, stops, lines, separators, line + np.searchsorted(newlines, stops))

    def _wrong_width(
        self, starts: np.ndarray, stops: np.ndarray, lines: np.ndarray, separators: np.ndarray, last_lines: np.ndarray
    ) -> InputError:
        fields = np.searchsorted(separators, stops) - np.searchsorted(separators, starts) + 1
        row = int(np.argmax(fields != self._num_fields))
        where = f"{self._where} line {lines[row]} has"
        if last_lines[row] > lines[row]:
            where = f"{self._where} lines {lines[row]} to {last_lines[row]} are, by their quotes, one row of"
        why = "header names" if self._dialect.header else "the first line has"
        return InputError(f"{where} {fields[row]} fields; need {self._num_fields}, as many as {why}")

    def _texts(self, data: bytes, records: _Records, wanted: Iterable[int], rows: slice) -> list[Texts]:
        characters = np.frombuffer(data, np.uint8)
        texts = []
        for position in wanted:
            starts, ends = records.starts[rows, position], records.ends[rows, position]
            if self._dialect.quotes and b'"' in data:
                texts.append(self._unquoted(data, characters, starts, ends, records.lines[rows]))
            else:
                texts.append(Texts(characters, starts, ends - starts))
        return texts

    def _unquoted(
        self, data: bytes, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray, lines: np.ndarray
    ) -> Texts:
        """Fields without their quotes; those that hold quotes are written anew behind the block."""
        quotes = np.flatnonzero(characters == _QUOTE)
        counts = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts)
        starts, lengths = starts.copy(), ends - starts
        rewritten: list[bytes] = []
        behind = len(data)
        for row in np.flatnonzero(counts > 2).tolist():
            field = data[starts[row] : ends[row]]
            inner = field[1:-1].replace(b'""', b"\0")
            if field[:1] + field[-1:] != b'""' or b'"' in inner:
                raise self._stray_quote(field, int(lines[row]))
            rewritten.append(inner.replace(b"\0", b'"'))
            starts[row], lengths[row] = behind, len(rewritten[-1])
            behind += lengths[row]
        quoted = np.flatnonzero((counts > 0) & (counts <= 2))
        first, last = characters[starts[quoted]], characters[ends[quoted] - 1]
        wrong = (counts[quoted] != 2) | (first != _QUOTE) | (last != _QUOTE)
        if wrong.any():
            row = int(quoted[np.argmax(wrong)])
            raise self._stray_quote(data[starts[row] : ends[row]], int(lines[row]))
        starts[quoted] += 1
        lengths[quoted] -= 2
        if rewritten:
            characters = np.frombuffer(data + b"".join(rewritten), np.uint8)
        return Texts(characters, starts, lengths)

    def _stray_quote(self, field: bytes, line: int) -> InputError:
        shown = field[:40].decode(errors="replace")
        return InputError(
            f"{self._where} line {line}: the quotes of {shown!r} are wrong; put the whole field in quotes and double"
            " those inside, or say quotes = false"
        )
