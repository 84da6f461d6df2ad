"""Rows of mapped files are those of the file, wherever they lie in it, and their pages are asked for at once."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.sampling.native import expect_rows
from jhgnn.stores import file_rows
from jhgnn.stores.file_rows import is_mapped, mapping_of, read_at_random, rows_of
from jhgnn.stores.host import HostRows
from jhgnn.stores.hot import HotRows

PAGE = os.sysconf("SC_PAGE_SIZE")


def mapped(path, rows: np.ndarray, skip: int = 0) -> np.ndarray:
    """Rows in a file behind `skip` bytes of something else, mapped."""
    path.write_bytes(bytes(skip) + rows.tobytes())
    return np.memmap(path, rows.dtype, "r", offset=skip, shape=rows.shape)


def forget(path) -> None:
    """Has the system drop the file's pages, once they are on the disk."""
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


@settings(max_examples=60, deadline=None)
@given(
    width=st.sampled_from([1, 3, 128, 2000]),
    skip=st.integers(0, 9000),
    first=st.integers(0, 5),
    ids=st.lists(st.integers(-1, 44), max_size=60),
)
def test_rows_are_those_of_the_file(tmp_path_factory, width, skip, first, ids):
    rows = np.random.default_rng(width).normal(size=(50, width)).astype(np.float32)
    table = mapped(tmp_path_factory.mktemp("rows") / "rows", rows, skip)[first:]
    again, wanted = read_at_random(table), np.array(ids, np.int32)
    expected = np.where(wanted[:, None] >= 0, rows[first:][wanted], 0.0)
    assert is_mapped(again)
    assert mapping_of(again) is not mapping_of(table)
    np.testing.assert_array_equal(again, table)
    for each in (table, again, rows[first:]):
        np.testing.assert_array_equal(rows_of(each, wanted), expected)


def test_what_is_in_memory_or_empty_stays_as_it_is(tmp_path):
    rows = np.ones((3, 2), np.float32)
    assert read_at_random(rows) is rows
    assert not is_mapped(rows)
    assert is_mapped(read_at_random(mapped(tmp_path / "rows", rows)))
    part = mapped(tmp_path / "more", rows)[:0]
    assert read_at_random(part) is part
    assert HostRows({"x": rows}).read_at_random().tables["x"] is rows


@pytest.mark.parametrize("replaced", [False, True])
def test_rows_of_a_file_that_is_gone_or_replaced_stay_those_that_were_mapped(replaced, tmp_path):
    rows, path = np.ones((3, 2), np.float32), tmp_path / "rows"
    table = mapped(path, rows)
    if replaced:
        (tmp_path / "new").write_bytes((2 * rows).tobytes())
        (tmp_path / "new").rename(path)
    else:
        path.unlink()
    own = read_at_random(table)
    assert own is table
    np.testing.assert_array_equal(rows_of(own, np.array([2, -1], np.int32)), [[1, 1], [0, 0]])


def test_only_what_is_not_in_memory_is_asked_for_and_neighbouring_pages_at_once(tmp_path):
    path = tmp_path / "rows"
    table = read_at_random(mapped(path, np.zeros((400, PAGE), np.int8)))
    few, run = np.array([5, 200, -1, 100, 5], np.int32), np.arange(300, 340, dtype=np.int32)
    forget(path)
    asked = expect_rows(table, few)
    if asked == 0:
        pytest.skip("the system keeps the pages of a file that it was told to forget")
    assert asked == 3
    assert expect_rows(table, run) == 1
    rows_of(table, np.arange(400, dtype=np.int32))
    assert expect_rows(table, few) == 0
    assert expect_rows(table, few, ask_always=True) == 3
    assert expect_rows(table, np.array([-1], np.int32), ask_always=True) == 0
    assert expect_rows(table, np.zeros(0, np.int32)) == 0


def test_a_store_of_another_kind_stays_one(tmp_path):
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    own = HotRows({"x": mapped(tmp_path / "rows", rows)}, {"x": np.full((1, 2), 9, np.float32)}).read_at_random()
    np.testing.assert_array_equal(own.gather("x", np.array([3, 1, -1], np.int32)), [[9, 9], [2, 3], [0, 0]])
    np.testing.assert_array_equal(own.joined()["x"], [*rows, [9, 9]])


@pytest.mark.parametrize("writable", [False, True])
def test_of_files_of_others_pages_are_always_asked_for(writable, tmp_path, monkeypatch):
    """The system says of them that all pages are in memory."""
    asked = []
    monkeypatch.setattr(file_rows, "expect_rows", lambda table, ids, *, ask_always: asked.append(ask_always))
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    table = mapped(tmp_path / "rows", np.ones((3, 2), np.float32))
    np.testing.assert_array_equal(rows_of(table, np.array([1], np.int32)), [[1, 1]])
    assert asked == [not writable]
