"""Shares: every target is trained once, at home while there is room."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.placement import Placement
from jhgnn.distributed.shares import by_home, merged, merged_size, plan_shares


@given(
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(0, 10**6),
    st.sampled_from(["owner", "leapgnn"]),
    st.integers(0, 5),
)
def test_every_target_stands_in_exactly_one_part(num_places, num_targets, seed, strategy, time_steps):
    time_steps = min(time_steps, num_places)
    rng = np.random.default_rng(seed)
    places = rng.integers(0, num_places, 40).astype(np.int32)
    batch_size = -(-num_targets // num_places) * num_places
    ids = np.full(batch_size, -1, np.int32)
    ids[:num_targets] = rng.permutation(40)[:num_targets]
    shares = plan_shares(strategy, num_places, batch_size, [ids], places, time_steps=time_steps)
    if strategy == "leapgnn":
        assert shares.num_parts == (time_steps or num_places)
    cut = shares.cut(ids)
    assert cut.shape == (num_places, shares.num_parts, shares.size)
    assert sorted(cut[cut >= 0].tolist()) == sorted(ids[ids >= 0].tolist())
    home = np.broadcast_to(np.arange(num_places)[:, None, None], cut.shape)[cut >= 0] == places[cut[cut >= 0]]
    assert shares.spilled(ids) == (~home).sum()


def test_what_a_full_home_cannot_take_goes_where_most_room_is():
    places = np.array([0, 0, 0, 0, 1, 2], np.int32)
    cut = by_home(np.array([3, 0, 1, 2, 4, -1], np.int32), places, 3, 2)
    assert cut.tolist() == [[3, 0], [4, 2], [1, -1]]
    with pytest.raises(ValueError, match="6 targets do not fit 2 shares of 2"):
        by_home(np.arange(6, dtype=np.int32), places % 2, 2, 2)


def test_a_share_may_be_empty():
    cut = by_home(np.array([0, 1], np.int32), np.zeros(2, np.int32), 3, 2)
    assert (cut[1:] == -1).all()


def test_leapgnn_meets_its_models_in_the_order_of_the_ring():
    places = np.arange(9, dtype=np.int32) % 3
    cut = plan_shares("leapgnn", 3, 9, [np.arange(9, dtype=np.int32)], places).cut(np.arange(9, dtype=np.int32))
    for place in range(3):
        for step in range(3):
            model = (place + step) % 3  # its targets are 3 * model, + 1, + 2
            assert cut[place, step].tolist() == [3 * model + place]


def test_merging_removes_the_step_of_the_smallest_part_and_evens_out_the_others():
    parts = np.full((2, 3, 4), -1, np.int32)
    parts[0, 0, :3], parts[0, 1, :1], parts[0, 2, :4] = [0, 1, 2], [3], [4, 5, 6, 7]
    parts[1, 0, :2], parts[1, 1, :4], parts[1, 2, :2] = [10, 11], [12, 13, 14, 15], [16, 17]
    two = merged(parts, 2, merged_size(3, 2, 4))
    assert two.shape == (2, 2, 6)
    found = [[own[own >= 0].tolist() for own in place] for place in two]
    assert found == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[10, 11, 12, 13], [16, 17, 14, 15]]]
    one = merged(parts, 1, merged_size(3, 1, 4))
    assert [sorted(place[place >= 0].tolist()) for place in one[:, 0]] == [[*range(8)], [*range(10, 18)]]


def test_rows_are_cut_and_joined_again():
    placement = Placement.of(Assignment(3, {"a": np.array([2, 0, 2, 2, 0], np.int32)}, "random"))
    assert placement.rows == {"a": 3}
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    cut = placement.cut("a", table)
    assert cut.shape == (3, 3, 2)
    assert not cut[1].any()  # a part that owns nothing
    np.testing.assert_array_equal(placement.whole("a", cut), table)
    np.testing.assert_array_equal(placement.cut("a", table, range(2, 3)), cut[2:])
    assert placement.places("a", np.array([0, -1, 4])).tolist() == [2, -1, 0]
