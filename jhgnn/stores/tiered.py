"""Learnable rows with the moments of their optimizer, in a file mapped into memory, with a fast tier on the device.

A row's values and moments stand together in the file, as a record, so that a miss reads one place of it. Every row has
one owner: rows of the fast tier, and those of the batch at hand, are current on the device, and all others in the file.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.errors import StorageError
from jhgnn.stores.file_rows import rows_of

Fast: TypeAlias = tuple[jax.Array, ...]
"""Values, then moments, `[kept + room, width]` each: the rows of the fast tier, and behind them those of a batch."""

CHUNK_BYTES = 2**26
ROOM_HALVINGS = 3  # programs that move rows of a batch: for all of the room, a half of it, and a quarter


class TieredRows:
    """The rows of one node type.

    Whoever updates rows holds `Fast`, whose memory each method takes over that gives another one. A batch's rows are
    staged, updated where they are, and committed, before the next batch's are staged.

    Attributes:
        records: `[num_rows, parts, width]`, of a file; rows that are current on the device are old there.
        kept: ids of the fast tier, int64 ascending.
        room: rows of one batch that need not be in the fast tier, at most.
        hits, misses: rows staged so far that were in the fast tier, and that were not.
    """

    def __init__(self, records: np.ndarray, room: int, place: Callable[[Any], Any] = jax.device_put) -> None:
        """
        Args:
            records: C-contiguous, as `mapped_array` makes it; the rows are those that it holds.
            room: see above.
            place: puts arrays where the rows are updated.
        """
        self.records, self.room, self._place = records, room, place
        self.kept = np.zeros(0, np.int64)
        self.hits = self.misses = 0
        self._slots = np.full(max(1, len(records)), -1, np.int32)
        self._staged = np.zeros(0, np.int32)

    @property
    def num_parts(self) -> int:
        return self.records.shape[1]

    def begin(self, ids: np.ndarray) -> Fast:
        """The fast tier with these rows, int64 ascending, as the file has them; nothing is staged."""
        self._slots.fill(-1)
        self.kept, self._staged = np.asarray(ids, np.int64), np.zeros(0, np.int32)
        self._slots[self.kept] = np.arange(len(self.kept), dtype=np.int32)
        size = (self.num_parts, len(self.kept) + self.room, self.records.shape[2])
        rows = np.zeros(size, self.records.dtype)
        found = rows_of(self.records, self.kept.astype(np.int32))
        rows[:, : len(self.kept)] = found.transpose(1, 0, 2)
        fast = tuple(self._place(part) for part in rows)
        for count in self._block_sizes:  # compiled now, and not when a batch is the first to need it
            block = np.zeros((count, self.num_parts, self.records.shape[2]), rows.dtype)
            fast = _put(fast, self._place(block), len(self.kept))
            _taken(fast, len(self.kept), count)
        return fast

    def keep(self, fast: Fast, ids: np.ndarray) -> Fast:
        """The fast tier with other rows: those that leave it are written back first."""
        self.flush(fast)
        return self.begin(ids)

    def stage(self, fast: Fast, ids: np.ndarray) -> tuple[Fast, np.ndarray]:
        """Brings a batch's rows to the device.

        Args:
            fast: as the last update left it.
            ids: int32 `[n]`, -1 for none, some perhaps more than once; at most `room` are not in the fast tier.

        Returns:
            the rows, and where each id stands among them, int32 `[n]`, -1 for none.
        """
        assert not len(self._staged), "a batch is staged already"
        slots = np.where(ids >= 0, self._slots.take(ids, mode="clip"), -1)
        missing = np.flatnonzero((slots < 0) & (ids >= 0))
        self.hits += int(np.count_nonzero(slots >= 0))
        self.misses += len(missing)
        if not len(missing):
            return fast, slots
        wanted, places = ids[missing], np.arange(len(missing), dtype=np.int32) + np.int32(len(self.kept))
        self._slots[wanted] = places  # of an id that comes again one place stays
        slots[missing] = self._slots[wanted]
        block = np.full(self._block_size(len(wanted)), -1, np.int32)
        block[: len(wanted)] = np.where(slots[missing] == places, wanted, -1)
        self._staged = block
        return _put(fast, self._place(rows_of(self.records, block)), len(self.kept)), slots

    def commit(self, fast: Fast) -> None:
        """Writes the rows of the batch that are not in the fast tier back to the file."""
        present = np.flatnonzero(self._staged >= 0)
        if len(present):
            rows = np.asarray(_taken(fast, len(self.kept), len(self._staged)))
            ids = self._staged[present]
            self.records[ids] = rows[present]
            self._slots[ids] = -1
        self._staged = np.zeros(0, np.int32)

    def flush(self, fast: Fast) -> None:
        """Writes the rows of the fast tier to the file, which then has all of them as they are now."""
        assert not len(self._staged), "a batch is staged"
        for part, rows in enumerate(fast):
            self._write(part, rows)

    def settle(self, values: jax.Array) -> None:
        """Writes the values of the fast tier, the first part of `Fast`, to the file, without moments."""
        self._write(0, values)

    def settled(self, ids: np.ndarray) -> np.ndarray:
        """Values in the file, `[n, width]`, of int32 ids `[n]`, zeros where one is -1; for programs that only read."""
        return np.ascontiguousarray(rows_of(self.records, ids)[:, 0])

    def copied_values(self, values: jax.Array, folder: Path) -> np.ndarray:
        """The values of all rows as they are now, `[num_rows, width]`, in a file of their own that only this reads."""
        self.settle(values)
        out = mapped_array(folder, (len(self.records), self.records.shape[2]), self.records.dtype)
        copy_rows(self.records[:, 0], out)
        out.flags.writeable = False
        return out

    def load(self, parts: tuple[Any, ...]) -> None:
        """Takes all rows from whole arrays `[num_rows, width]`, values and then moments; begin anew after it."""
        for number, part in enumerate(parts):
            copy_rows(np.asarray(part), self.records[:, number])

    def _write(self, part: int, rows: jax.Array) -> None:
        if len(self.kept):
            self.records[self.kept, part] = np.asarray(rows[: len(self.kept)])

    @property
    def _block_sizes(self) -> list[int]:
        """Numbers of rows that programs move at once, the smallest first."""
        sizes = {self.room}
        for _ in range(ROOM_HALVINGS - 1):
            sizes.add(-(-min(sizes) // 2))
        return sorted(sizes - {0})

    def _block_size(self, count: int) -> int:
        assert count <= self.room, f"{count} rows of a batch, with room for {self.room}"
        return next(size for size in self._block_sizes if size >= count)


def mapped_array(folder: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in a file mapped into memory, which has no name: it goes with the array, also where the process is killed.

    Its space is reserved, since a disk that fills up later would end the process.

    Raises:
        StorageError: there is no such space.
    """
    size = max(1, int(np.prod(shape, dtype=np.int64)))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
            mapped = np.memmap(file, dtype, "r+", shape=(size,))
    except OSError as error:
        gib = size * np.dtype(dtype).itemsize / 2**30
        raise StorageError(
            f"{folder}: cannot keep {gib:.2f} GiB of embedding tables and their optimizer state there:"
            f" {error.strerror}; free some space, or put run.dir elsewhere"
        ) from error
    return mapped[: int(np.prod(shape, dtype=np.int64))].reshape(shape)


def copy_rows(source: np.ndarray, target: np.ndarray) -> None:
    """Copies rows `[n, width]` piece by piece."""
    step = max(1, CHUNK_BYTES // max(1, source.itemsize * source.shape[1]))
    for start in range(0, len(source), step):
        target[start : start + step] = source[start : start + step]


def hit_rates(stores: Mapping[str, TieredRows]) -> dict[str, float]:
    """By type the share of the rows staged so far that the fast tier had."""
    return {name: own.hits / max(1, own.hits + own.misses) for name, own in stores.items()}


@functools.partial(jax.jit, donate_argnums=0)
def _put(fast: Fast, rows: jax.Array, start: jax.Array) -> Fast:
    return tuple(jax.lax.dynamic_update_slice(part, rows[:, number], (start, 0)) for number, part in enumerate(fast))


@functools.partial(jax.jit, static_argnums=2)
def _taken(fast: Fast, start: jax.Array, count: int) -> jax.Array:
    return jnp.stack([jax.lax.dynamic_slice(part, (start, 0), (count, part.shape[1])) for part in fast], axis=1)
