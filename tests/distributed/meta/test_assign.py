"""Largest first against all ways there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.distributed.meta.assign import MOST_EXHAUSTIVE, exhaustive, largest_first, makespan
from jhgnn.errors import InputError

weights = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=0, max_size=8)


@given(weights, st.integers(1, 5))
def test_largest_first_is_near_the_best(pieces, num_shards):
    """Graham's bound, which the search must not beat by more, and must meet."""
    found = makespan(pieces, largest_first(pieces, num_shards), num_shards)
    best = makespan(pieces, exhaustive(pieces, num_shards), num_shards)
    assert best <= found + 1e-9
    assert found <= (4 / 3 - 1 / (3 * num_shards)) * best + 1e-9
    assert best >= max([sum(pieces) / num_shards, *pieces]) - 1e-9


def test_the_search_finds_what_largest_first_misses():
    pieces = [3.0, 3.0, 2.0, 2.0, 2.0]
    assert makespan(pieces, largest_first(pieces, 2), 2) == 7
    assert makespan(pieces, exhaustive(pieces, 2), 2) == 6


@given(weights, st.integers(1, 5), st.randoms(use_true_random=False))
def test_ties_go_by_position(pieces, num_shards, random):
    once = largest_first(pieces, num_shards)
    assert once == largest_first(list(pieces), num_shards)
    order = list(range(len(pieces)))
    random.shuffle(order)
    shuffled = largest_first([pieces[number] for number in order], num_shards)
    assert makespan([pieces[number] for number in order], shuffled, num_shards) == pytest.approx(
        makespan(pieces, once, num_shards)
    )
    assert largest_first([1.0] * 4, 3) == [0, 1, 2, 0]


def test_too_many_pieces_for_all_ways():
    with pytest.raises(InputError, match=f"got {MOST_EXHAUSTIVE + 1} pieces; it takes up to {MOST_EXHAUSTIVE}"):
        exhaustive([1.0] * (MOST_EXHAUSTIVE + 1), 2)
