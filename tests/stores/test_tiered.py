"""A fast tier over a file: whatever comes in which order, every update is there once, as in an array in memory."""

import errno
import os
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jhgnn.errors import StorageError
from jhgnn.stores.file_rows import is_mapped
from jhgnn.stores.tiered import TieredRows, hit_rates, mapped_array

NUM_ROWS, PARTS, WIDTH, ROOM = 9, 3, 2, 5

ids_of_batch = st.lists(st.integers(-1, NUM_ROWS - 1), max_size=ROOM)
ids_kept = st.one_of(st.just(set()), st.sets(st.integers(0, NUM_ROWS - 1), min_size=3, max_size=3))  # of two sizes


def written(fast, places, amount):
    """Adds a number of its own to each part of the rows at some places, to each row once."""
    rows = [np.array(part) for part in fast]
    for number, part in enumerate(rows):
        part[np.unique(places[places >= 0])] += np.float32(amount + number)
    return tuple(map(jax.device_put, rows))


def ascending(ids) -> np.ndarray:
    return np.array(sorted(ids), np.int64)


class Interleavings(RuleBasedStateMachine):
    """Reads, updates, changes of what is kept, checkpoints and kills, against whole arrays in memory.

    After a kill what was in memory and in the file of training is lost: all goes on from the checkpoint, as the
    reference goes back to what it was then.
    """

    @initialize(kept=ids_kept)
    def begin(self, kept):
        self.folder = Path(tempfile.gettempdir())
        self.truth = np.random.default_rng(0).normal(size=(NUM_ROWS, PARTS, WIDTH)).astype(np.float32)
        self.checkpoint = (self.truth.copy(), self.truth.copy())
        self.started(kept)

    def started(self, kept) -> None:
        """A process that reads the checkpoint."""
        self.store = TieredRows(mapped_array(self.folder, self.truth.shape, np.float32), ROOM)
        self.store.load(tuple(self.checkpoint[0][:, part] for part in range(PARTS)))
        self.fast = self.store.begin(ascending(kept))

    @rule(ids=ids_of_batch)
    def read(self, ids):
        ids = np.array(ids, np.int32)
        self.fast, places = self.store.stage(self.fast, ids)
        for part, rows in enumerate(self.fast):
            found = np.asarray(rows)[places]
            np.testing.assert_array_equal(found[ids >= 0], self.truth[ids[ids >= 0], part])
        assert (places[ids < 0] == -1).all()
        self.store.commit(self.fast)

    @rule(ids=ids_of_batch, amount=st.integers(1, 9))
    def update(self, ids, amount):
        """Each row once, as an optimizer does, though a batch may name it several times."""
        ids = np.array(ids, np.int32)
        self.fast, places = self.store.stage(self.fast, ids)
        self.fast = written(self.fast, places, amount)
        for part in range(PARTS):
            self.truth[np.unique(ids[ids >= 0]), part] += np.float32(amount + part)
        self.store.commit(self.fast)

    @rule(kept=ids_kept)
    def keep_others(self, kept):
        self.fast = self.store.keep(self.fast, ascending(kept))

    @rule()
    def save(self):
        self.store.flush(self.fast)
        self.checkpoint = (self.store.records.copy(), self.truth.copy())

    @precondition(lambda self: hasattr(self, "store"))
    @rule(kept=ids_kept, staged=ids_of_batch)
    def kill(self, kept, staged):
        """In the middle of an update: of one that has come to the device, and not back."""
        self.fast, places = self.store.stage(self.fast, np.array(staged, np.int32))
        self.fast = written(self.fast, places, 7)
        self.truth = self.checkpoint[1].copy()
        self.started(kept)

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def every_row_is_current(self):
        np.testing.assert_array_equal(self.store.copied_values(self.fast[0], self.folder), self.truth[:, 0])


Interleavings.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestInterleavings = Interleavings.TestCase


def made(kept=(), room: int = ROOM) -> tuple[TieredRows, tuple[jax.Array, ...]]:
    records = mapped_array(Path(tempfile.gettempdir()), (NUM_ROWS, PARTS, WIDTH), np.float32)
    records[:] = np.arange(records.size).reshape(records.shape)
    store = TieredRows(records, room)
    return store, store.begin(ascending(kept))


def test_a_row_is_current_in_one_place_alone():
    """What is written to the file of a row that is kept, or staged, is not read, and is written over."""
    store, fast = made(kept=[2])
    fast, places = store.stage(fast, np.array([2, 5], np.int32))
    store.records[[2, 5]] = -1
    assert [float(fast[0][place, 0]) for place in places] == [2 * PARTS * WIDTH, 5 * PARTS * WIDTH]
    store.commit(fast)
    assert store.records[5, 0, 0] == 5 * PARTS * WIDTH
    assert store.records[2, 0, 0] == -1
    store.flush(fast)
    assert store.records[2, 0, 0] == 2 * PARTS * WIDTH


def test_hits_and_misses_are_counted_by_row():
    store, fast = made(kept=[0, 1])
    fast, _ = store.stage(fast, np.array([0, 4, -1, 5, 1], np.int32))
    store.commit(fast)
    assert (store.hits, store.misses) == (2, 2)
    assert hit_rates({"a": store}) == {"a": 0.5}


def test_no_batch_is_staged_before_the_last_one_is_written_back():
    store, fast = made()
    fast, _ = store.stage(fast, np.array([1], np.int32))
    with pytest.raises(AssertionError, match="a batch is staged already"):
        store.stage(fast, np.array([2], np.int32))
    with pytest.raises(AssertionError, match="a batch is staged"):
        store.flush(fast)


@pytest.mark.parametrize("shape", [(0, 3, 2), (4, 1, 2)])
def test_types_without_rows_and_tables_without_moments(shape):
    store = TieredRows(mapped_array(Path(tempfile.gettempdir()), shape, np.float32), room=shape[0])
    fast, places = store.stage(store.begin(np.zeros(0, np.int64)), np.array([-1], np.int32))
    assert places.tolist() == [-1]
    store.commit(fast)
    assert len(fast) == shape[1]


def test_the_file_has_no_name_and_is_told_from_memory(tmp_path):
    array = mapped_array(tmp_path, (3, 2), np.float32)
    assert array.shape == (3, 2)
    assert not array.any()
    assert is_mapped(array)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_before_anything_is_trained(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"cannot keep 0\.00 GiB of embedding tables .*: No space left on device"):
        mapped_array(tmp_path, (3, 2), np.float32)
