"""The fast path over blocks and the row-by-row path read the same numbers, wherever blocks are cut."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jhgnn.data import number_table
from jhgnn.data.hgb_attributes import AttributeRows
from jhgnn.data.number_table import read_table
from jhgnn.errors import InputError


@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
@given(table=arrays(np.int64, st.tuples(st.integers(0, 20), st.integers(1, 4)), elements=st.integers(-999, 99999)))
def test_any_block_size(block_bytes, table):
    text = "".join("\t".join(map(str, row)) + "\n" for row in table.tolist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_table, "BLOCK_BYTES", block_bytes)
        for variant in (text, text.replace("\n", "\r\n"), text.rstrip("\n"), text.replace("\n", "\n\n")):
            for dtype in (np.int64, np.float64):
                read = read_table(io.BytesIO(variant.encode()), "x", columns=table.shape[1], dtype=dtype)
                np.testing.assert_array_equal(read, table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3\n4,5,6\n", "x row 2 has 1 fields; need 2"),
        ("1,2\n3,\n,4\n", "x row 2: '' is not a whole number"),
        ("1,2\n\n3,4.5\n", "x row 3: '4.5' is not a whole number"),
        ("1,2\n3,1_0\n", "x row 2: '1_0' is not a whole number"),
        ("1 2,\n", "x row 1: '1 2' is not a whole number"),
    ],
)
def test_the_row_is_named(text, message):
    with pytest.raises(InputError, match=message):
        read_table(io.BytesIO(text.encode()), "x", separator=b",", dtype=np.int64)


def test_stray_spaces_are_read():
    read = read_table(io.BytesIO(b"1, 2\n3 ,4\n"), "x", separator=b",", dtype=np.int64)
    np.testing.assert_array_equal(read, [[1, 2], [3, 4]])


@given(
    matrix=arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 6)),
                  elements=st.sampled_from([0, 0, 0, 1, 9, 10])),
    blocks=st.integers(1, 4),
)  # fmt: skip
def test_attributes_of_one_and_more_digits(matrix, blocks):
    """Rows of single digits take the fast path, others the slow one; the order of the file stays."""
    rows = AttributeRows("x")
    numbered = [(2 * i + 1, ",".join(map(str, row)).encode()) for i, row in enumerate(matrix.tolist())]
    for part in range(blocks):
        chosen = numbered[part::blocks]
        rows.add([text for _, text in chosen], [row for row, _ in chosen])
    read = rows.matrix(np.array([row for row, _ in numbered]))
    np.testing.assert_array_equal(read if isinstance(read, np.ndarray) else read.toarray(), matrix)
    assert isinstance(read, np.ndarray) == (np.count_nonzero(matrix) >= 0.2 * matrix.size)


@pytest.mark.parametrize("text", [b"0,1;0", b"0,/,0", b"0,:,0", b"0 1,0", b"0,,00"])
def test_attributes_of_the_right_length_that_are_no_digits(text):
    rows = AttributeRows("x")
    with pytest.raises(InputError, match="x row 8"):
        rows.add([b"0,0,0", text], [7, 8])
