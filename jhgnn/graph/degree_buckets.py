"""DegreeBuckets: the rows of a compressed matrix grouped by how many entries they have, so that loops have one length.

A program for a GPU sums a row's entries in a loop of constant length, one thread a result, and needs no scatter. Rows
of about one length stand in one bucket, whose loop is as long as its longest row. Rows that are longer than any loop
are cut into pieces of about equal length, and the sums of pieces are summed the same way.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

SLOTS = 31
"""Entries that one loop sums. XLA fuses a reduction with what it reads if it is shorter than a warp of 32; from there
on it writes out what is to be reduced first."""
LOOPS = 4
"""Loops of a row that are written out one after the other; a longer row goes round as often as it has to."""
ROUND = LOOPS * SLOTS
BUCKET_COST = 2**15
"""Entries that could be summed in the time that one more bucket takes: a few launches of kernels. An estimate."""
MOST_BUCKETS = 6
PART_ENTRIES = 2**19
"""Entries that are summed at once: arrays of the size entries x heads are no larger, and stay in a GPU's cache."""
MOST_PIECES = 2**14
"""Of all long rows, unless those are more: enough for every processor, and little memory for their sums."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Bucket:
    """Rows, or pieces of rows, of at most `width` entries; in parts that are summed one after the other.

    Up to `ROUND` entries are loops of at most `SLOTS`; a greater width is a multiple of it.

    Attributes:
        starts, counts: int32 `[parts, rows]`, where a row's entries stand and how many there are; 0 for padding.
        rows: int32 `[parts, rows]`, the number of the row; None where one part has all rows, in their order.
        width: static.
    """

    starts: Array
    counts: Array
    rows: Array | None
    width: int = dataclasses.field(metadata={"static": True})

    @property
    def num_rows(self) -> int:
        """With padding."""
        return int(self.starts.shape[0] * self.starts.shape[1])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class DegreeBuckets:
    """All rows of a compressed matrix.

    Attributes:
        buckets: of whole rows.
        pieces: of what is too long for them, or None; a row's pieces follow one another.
        joined: the rows whose pieces are to be summed, where a piece is an entry; None without pieces.
        places: int32 `[num_rows]`, where a row's result stands among those of the buckets and of `joined`, one after
            the other; -1 for rows without entries; None where a single bucket has all rows in their order.
        num_rows: static.
    """

    buckets: tuple[Bucket, ...]
    pieces: Bucket | None
    joined: "DegreeBuckets | None"
    places: Array | None
    num_rows: int = dataclasses.field(metadata={"static": True})

    @property
    def num_entries(self) -> int:
        """Of all loops, with padding."""
        own = sum(bucket.width * bucket.num_rows for bucket in self.buckets)
        if self.pieces is None or self.joined is None:
            return own
        return own + self.pieces.width * self.pieces.num_rows + self.joined.num_entries


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BothBuckets:
    """Of the two directions of a graph or matrix."""

    forwards: DegreeBuckets  # receivers, or rows
    backwards: DegreeBuckets  # senders, or columns


def degree_buckets(indptr: np.ndarray) -> DegreeBuckets:
    """Groups the rows of a compressed matrix, `indptr` `[num_rows + 1]`, on the host."""
    starts = np.asarray(indptr[:-1], np.int32)
    return _grouped(starts, np.diff(indptr).astype(np.int32))


def _grouped(starts: np.ndarray, counts: np.ndarray) -> DegreeBuckets:
    num_rows, most = len(counts), int(counts.max(initial=0))
    plan = min((_plan(counts, loops * SLOTS) for loops in range(1, LOOPS + 1)), key=lambda plan: plan.cost)
    if 0 < most <= ROUND and num_rows * most <= plan.cost:
        bucket = _bucket(starts, counts, np.arange(num_rows, dtype=np.int32), most)
        if bucket.starts.shape[0] == 1:
            bucket = dataclasses.replace(bucket, rows=None)
        return DegreeBuckets((bucket,), None, None, None, num_rows)
    places, offset, lower, buckets = np.full(num_rows, -1, np.int32), 0, 0, []
    for width in plan.widths:
        rows = np.flatnonzero((counts > lower) & (counts <= width)).astype(np.int32)
        buckets.append(_bucket(starts[rows], counts[rows], rows, width))
        places[rows] = offset + np.arange(len(rows), dtype=np.int32)
        offset, lower = offset + buckets[-1].num_rows, width
    rows = np.flatnonzero(counts > plan.longest).astype(np.int32)
    if not len(rows):
        return DegreeBuckets(tuple(buckets), None, None, places, num_rows)
    places[rows] = offset + np.arange(len(rows), dtype=np.int32)
    return DegreeBuckets(tuple(buckets), *_cut(starts[rows], counts[rows], rows, plan.piece), places, num_rows)


class _Plan(NamedTuple):
    """How rows are grouped: those of up to `longest` entries into buckets of these widths, longer ones into pieces."""

    longest: int
    widths: list[int]
    piece: int
    cost: int  # in entries


def _plan(counts: np.ndarray, longest: int) -> _Plan:
    """The cheapest widths for rows of these lengths.

    `best[end]` is the least cost of all rows up to the `end`th length that occurs, where a bucket ends there.
    """
    short, long = counts[(counts > 0) & (counts <= longest)], counts[counts > longest].astype(np.int64)
    lengths, rows = np.unique(short, return_counts=True)
    before = np.concatenate([[0], np.cumsum(rows)])
    best, chosen = [(0, 0)], []  # (cost, number of buckets)
    for end, width in enumerate(lengths.tolist(), start=1):
        options = [
            (best[begin][0] + BUCKET_COST + width * int(before[end] - before[begin]), best[begin][1] + 1, begin)
            for begin in range(end)
            if best[begin][1] < MOST_BUCKETS
        ]
        cost, count, begin = min(options)
        best.append((cost, count))
        chosen.append(begin)
    widths, end = [], len(lengths)
    while end:
        widths.append(int(lengths[end - 1]))
        end = chosen[end - 1]
    cost, piece = best[-1][0], longest
    if len(long):
        allowed = max(MOST_PIECES, 2 * len(long))
        if _num_pieces(long, longest) > allowed:
            piece = ROUND
            while _num_pieces(long, piece) > allowed:
                piece += ROUND
        cost += 2 * BUCKET_COST + _num_pieces(long, piece) * (piece + 2)
    return _Plan(longest, widths[::-1], piece, cost)


def _num_pieces(counts: np.ndarray, piece: int) -> int:
    return int((-(-counts // piece)).sum())


def _cut(starts: np.ndarray, counts: np.ndarray, rows: np.ndarray, piece: int) -> tuple[Bucket, DegreeBuckets]:
    """Pieces of at most so many entries of long rows, and how they are joined."""
    number = -(-counts // piece)
    first = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(number, out=first[1:])
    owner = np.repeat(np.arange(len(rows)), number)
    part = np.arange(first[-1]) - first[owner]
    begin = part * counts[owner] // number[owner]
    end = (part + 1) * counts[owner] // number[owner]
    pieces = _bucket(
        (starts[owner] + begin).astype(np.int32), (end - begin).astype(np.int32), rows[owner].astype(np.int32), piece
    )
    return pieces, _grouped(first[:-1].astype(np.int32), number.astype(np.int32))


def _bucket(starts: np.ndarray, counts: np.ndarray, rows: np.ndarray, width: int) -> Bucket:
    return Bucket(in_parts(starts, width), in_parts(counts, width), in_parts(rows, width), width)


def in_parts(values: Array, width: int) -> Array:
    """`[rows]` as `[parts, rows of a part]` for rows of that width, padded with zeros; of the host or traced."""
    xp = np if isinstance(values, np.ndarray) else jnp
    parts = max(1, -(-len(values) // max(1, PART_ENTRIES // min(width, ROUND))))
    each = -(-len(values) // parts)
    return xp.pad(values, (0, parts * each - len(values))).reshape(parts, each)
