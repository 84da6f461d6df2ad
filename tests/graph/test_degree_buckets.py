"""Degree buckets: every entry of every row is summed once, in loops of bounded length, whatever the degrees."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.graph import degree_buckets as module
from jhgnn.graph.degree_buckets import ROUND, Bucket, DegreeBuckets, degree_buckets
from jhgnn.graph.semantic_graph import SemanticGraph


def entries_of(grouped: DegreeBuckets) -> list[list[int]]:
    """The entries that each row sums, by walking buckets, pieces and places as the ops do."""
    results = [row for bucket in grouped.buckets for row in rows_of(bucket)]
    if grouped.pieces is not None and grouped.joined is not None:
        pieces = rows_of(grouped.pieces)
        results += [[entry for piece in own for entry in pieces[piece]] for own in entries_of(grouped.joined)]
    if grouped.places is None:
        return results[: grouped.num_rows]
    return [results[place] if place >= 0 else [] for place in grouped.places]


def rows_of(bucket: Bucket) -> list[list[int]]:
    starts, counts = bucket.starts.reshape(-1), bucket.counts.reshape(-1)
    assert counts.max(initial=0) <= bucket.width
    assert bucket.width <= ROUND or bucket.width % ROUND == 0
    return [list(range(start, start + count)) for start, count in zip(starts, counts, strict=True)]


def check(counts: np.ndarray) -> DegreeBuckets:
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    grouped = degree_buckets(indptr)
    expected = [list(range(begin, end)) for begin, end in itertools.pairwise(indptr)]
    assert entries_of(grouped) == expected
    numbers(grouped, counts)
    return grouped


def numbers(grouped: DegreeBuckets, counts: np.ndarray) -> None:
    """The rows that buckets name are those whose entries they hold."""
    indptr = np.concatenate([[0], np.cumsum(counts)])
    for bucket in [*grouped.buckets, *([grouped.pieces] if grouped.pieces is not None else [])]:
        if bucket.rows is None:
            assert bucket.starts.shape[0] == 1
            assert bucket.num_rows == len(counts)
            continue
        filled = bucket.counts.reshape(-1) > 0
        starts, rows = bucket.starts.reshape(-1)[filled], bucket.rows.reshape(-1)[filled]
        assert ((indptr[rows] <= starts) & (starts < indptr[rows + 1])).all()


@given(st.lists(st.one_of(st.integers(0, 8), st.integers(0, 200), st.integers(0, 3000)), max_size=40))
def test_every_entry_stands_in_one_place(counts: list[int]) -> None:
    check(np.array(counts, int))


@pytest.mark.parametrize("counts", [[], [0, 0], [1], [31] * 5, [32], [124, 125], [0, 20_000, 0, 1]])
def test_borders(counts: list[int]) -> None:
    check(np.array(counts, int))


def test_few_edges_are_one_bucket_in_order() -> None:
    grouped = check(np.random.default_rng(0).integers(0, 20, 1000))
    assert (len(grouped.buckets), grouped.pieces, grouped.places) == (1, None, None)


def test_many_edges_are_few_buckets_with_little_padding() -> None:
    counts = (np.random.default_rng(0).pareto(1.2, 200_000) * 2).astype(int) + 1
    grouped = check(counts)
    assert 2 <= len(grouped.buckets) <= module.MOST_BUCKETS
    assert counts.sum() < grouped.num_entries < 1.6 * counts.sum()


def test_long_rows_of_many_edges_are_pieces_of_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PIECES", 16)
    grouped = check(np.array([40_000, 3, 9_000]))
    assert grouped.pieces is not None
    assert grouped.pieces.width > ROUND
    assert grouped.pieces.num_rows <= 16


def test_many_entries_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ENTRIES", 500)
    grouped = check(np.random.default_rng(0).integers(1, 20, 1000))
    for bucket in grouped.buckets:
        assert bucket.starts.shape[0] > 1
        assert bucket.starts.shape[1] * bucket.width <= 500


def test_a_symmetric_graph_has_one_direction_and_places_it_once() -> None:
    graph = SemanticGraph.from_pairs(np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1]), 3, 3)
    mirrored = graph.__class__(**{**vars(graph), "outgoing": graph.incoming})
    placed = mirrored.place(("buckets",))
    assert placed.buckets is not None
    assert placed.buckets.backwards.buckets[0].starts is placed.buckets.forwards.buckets[0].starts
    assert placed.outgoing.indices is placed.incoming.indices
    assert graph.place(()).buckets is None
