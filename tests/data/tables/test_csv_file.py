"""The CSV reader against Python's own, at every size of block."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.data.tables import csv_file
from jhgnn.data.tables.csv_file import CsvReader, Dialect
from jhgnn.errors import InputError

PLAIN = Dialect()
FIELDS = st.text(st.sampled_from('ab1,;"\n\r\t ä'), max_size=6)


def read(data: bytes, dialect: Dialect = PLAIN, block: int = 1 << 20) -> tuple[list[str], list[list], list[int]]:
    """Names, rows (None: missing) and the line that each row begins at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "BLOCK_BYTES", block)
        reader = CsvReader(io.BytesIO(data), "x.csv", dialect)
        names = list(reader.header())
        rows, lines = [], []
        for chunk in reader.chunks({name: position for position, name in enumerate(names)}):
            columns = [chunk.columns[name] for name in names]
            for row in range(chunk.num_rows):
                rows.append([None if column.missing[row] else column.values[row] for column in columns])
                lines.append(int(chunk.place(row).removeprefix("x.csv line ")))
    return names, rows, lines


@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(FIELDS, min_size=width, max_size=width), max_size=8)
    ),
    block=st.integers(1, 40),
    separator=st.sampled_from(",;\t"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    last_line_ends=st.booleans(),
)
def test_every_table_that_python_writes_is_read_as_python_reads_it(
    rows, block, separator, line_end, quoting, last_line_ends
):
    has_return = "\r" in "".join(field for row in rows for field in row)
    if has_return:  # bare, it would be the line's end
        quoting = csv.QUOTE_ALL
    text = io.StringIO()
    width = len(rows[0]) if rows else 2
    writer = csv.writer(text, delimiter=separator, lineterminator=line_end, quoting=quoting)
    writer.writerow([f"c{number}" for number in range(width)])
    writer.writerows(rows)
    written = text.getvalue() if last_line_ends else text.getvalue().removesuffix(line_end)
    names, found, lines = read(written.encode(), Dialect(separator, missing=()), block)
    assert names == [f"c{number}" for number in range(width)]
    assert found == rows
    starts = csv.reader(io.StringIO(written, newline=""), delimiter=separator)
    expected, last = [], 0
    for _ in starts:
        expected.append(last + 1)
        last = starts.line_num
    if not has_return:  # a line end to Python, not here
        assert lines == expected[1:]


def test_what_is_missing_skipped_and_kept():
    data = b'\xef\xbb\xbfa,b\r\n1,""\r\n\r\nNA, x\n"NA",""""\n'
    names, rows, lines = read(data, Dialect(missing=("", "NA")))
    assert names == ["a", "b"]
    assert rows == [["1", None], [None, " x"], [None, '"']]
    assert lines == [2, 4, 5]
    assert read(data, Dialect(missing=()))[1][0] == ["1", ""]
    assert read(b'5"\n6"\n', Dialect(quotes=False))[:2] == (['5"'], [['6"']])
    assert read(b"1\t2\n", Dialect("\t", header=("x", "y"))) == (["x", "y"], [["1", "2"]], [1])
    assert read(b"a\n") == (["a"], [], [])
    assert read(b"", Dialect(header=("x",))) == (["x"], [], [])


BROKEN = [
    (b"", r"x\.csv is empty; need a first line"),
    (b"\n\r\n", r"is empty"),
    (b"a,b\n1,2\n3\n", r"line 3 has 1 fields; need 2, as many as the first line has"),
    (b"a,b\n1,2,3\n", r"line 2 has 3 fields"),
    (b'a,b\n"1\n3,4\n5",6,7\n', r"lines 2 to 4 are, by their quotes, one row of 3 fields"),
    (b'a,b\n1,"2\n3,4\n', r"line 2: a quote is opened that is never closed"),
    (b'a,b\n1,2\n3,"x"y\n', r"line 3: the quotes of '\"x\"y' are wrong"),
    (b'a,b\n1,x"y"\n', r"line 2: the quotes of 'x\"y\"' are wrong"),
    (b'a,b\n1,"x"y"z"\n', r"line 2: the quotes of"),
    (b"a,b\n1,2\n\xff,3\n", r"line 3 is not UTF-8 text"),
    (b"a,b\n1,\x00\n", r"line 2 holds a NUL byte"),
    ("a,b\n1,2\n".encode("utf-16"), r"is UTF-16 text; save the file as UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(("data", "expected"), BROKEN)
def test_broken_files_are_one_line_each(data, expected, block):
    with pytest.raises(InputError, match=expected) as caught:
        read(data, block=block)
    assert "\n" not in str(caught.value)


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(csv_file, "MAX_RECORD_BYTES", 100)
    with pytest.raises(InputError, match="line 2: a quote is opened"):
        read(b'a\n"' + b"x\n" * 1000 + b'"\n', block=64)
