"""A fast tier changes where rows are read from, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.stores.cached import CachedRows
from jhgnn.stores.file_rows import is_mapped
from jhgnn.stores.host import HostRows


@given(
    st.sets(st.integers(0, 8)),
    st.lists(st.lists(st.integers(-1, 8), max_size=12), max_size=4),
    st.sampled_from([np.float32, np.float64]),
)
def test_rows_are_those_of_the_table_whichever_are_kept(kept, batches, dtype):
    tables = {name: np.random.default_rng(len(name)).normal(size=(9, 3)).astype(dtype) for name in ("a", "other")}
    plain, cached = HostRows(tables), CachedRows(tables, {"a": np.array(sorted(kept), np.int64)})
    hits = misses = 0
    for batch in batches:
        ids = np.array(batch, np.int32)
        for name in tables:
            np.testing.assert_array_equal(cached.gather(name, ids), plain.gather(name, ids))
        hits += sum(each in kept for each in batch)
        misses += sum(each >= 0 and each not in kept for each in batch)
    assert (cached.hits, cached.misses) == ({"a": hits}, {"a": misses})
    assert cached.cached_bytes == len(kept) * 3 * np.dtype(dtype).itemsize
    assert (cached.num_cached("a"), cached.num_cached("other")) == (len(kept), 0)


def test_kept_rows_are_not_read_from_the_file_again(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((9, 3), np.float32))
    table = np.load(tmp_path / "rows.npy", mmap_mode="r+")
    cached = CachedRows({"a": table}, {"a": np.array([2, 5])})
    table[:] = 7
    rows = cached.gather("a", np.array([[2, 3], [-1, 5]], np.int32))
    np.testing.assert_array_equal(rows[..., 0], [[1, 7], [0, 1]])


def test_arrays_of_files_are_told_from_arrays_in_memory(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((9, 3), np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert is_mapped(mapped)
    assert is_mapped(np.ascontiguousarray(mapped, np.float32))
    assert not is_mapped(np.ascontiguousarray(mapped, np.float64))
    assert not is_mapped(np.ones(3))


@pytest.mark.parametrize("shape", [(0,), (0, 4)])
def test_no_ids_are_no_rows(shape):
    cached = CachedRows({"a": np.ones((3, 2), np.float32)}, {"a": np.array([1])})
    assert cached.gather("a", np.zeros(shape, np.int32)).shape == (*shape, 2)
