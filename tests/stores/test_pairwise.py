"""Rows that few places keep, fetched by permutations between the pairs that ask each other for any."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from jhgnn.distributed.placement import Placement
from jhgnn.stores.exchange import Pairwise
from jhgnn.stores.sharded import ShardedRows

PARTS = {"a": np.array([1, 0, 1, 0, 0], np.int32), "b": np.array([0, 0, 0], np.int32)}
PLACEMENT = Placement.joint(PARTS, 2, "given")
TABLES = {"a": np.arange(10, dtype=np.float32).reshape(5, 2), "b": 100 + np.arange(6, dtype=np.float32).reshape(3, 2)}
JOINED = sum(PLACEMENT.cut(name, table) for name, table in TABLES.items())
HOMES = np.concatenate([PLACEMENT.homes["a"], PLACEMENT.homes["b"]])
ALL = np.concatenate([TABLES["a"], TABLES["b"]])
IDS = np.array([[1, 0, -1, 5], [0, 1, 5, 3]], np.int32)  # the first place asks for 0 alone, the second for 1, 5 and 3


def run(counts, ids=IDS):
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    homes = jnp.asarray(HOMES)

    def both(own, ids):
        store = ShardedRows({"": own[0]}, {"": homes}, Pairwise(counts, ("d",)))
        found = store.fetch({"": ids[0]})
        gradients = {"": jnp.where((ids[0] >= 0)[:, None], found.rows[""], 0.0)}
        made = (found.rows[""], found.overflowed, *store.give_back(found.routes, gradients)[""])
        return jax.tree.map(lambda leaf: leaf[None], made)

    cut = PartitionSpec("d")
    mapped = jax.shard_map(both, mesh=mesh, in_specs=(cut, cut), out_specs=cut, check_vma=False)
    return jax.tree.map(np.asarray, jax.jit(mapped)(JOINED, ids))


@pytest.mark.parametrize("counts", [((0, 1), (3, 0)), ((0, 2), (5, 0))])
def test_every_place_gets_its_rows_and_owners_the_summed_gradients(counts):
    rows, overflowed, ids, gradients = run(counts)
    assert not overflowed.any()
    np.testing.assert_array_equal(rows[IDS >= 0], ALL[IDS[IDS >= 0]])
    summed = np.zeros_like(JOINED)
    for place in range(2):
        own = ids[place][ids[place] >= 0]
        assert len(set(own)) == len(own)
        summed[place, own] = gradients[place][ids[place] >= 0]
    expected = np.zeros_like(ALL)
    np.add.at(expected, IDS[IDS >= 0], ALL[IDS[IDS >= 0]])
    np.testing.assert_array_equal(summed.reshape(-1, 2)[HOMES], expected)


@pytest.mark.parametrize("counts", [((0, 1), (2, 0)), ((0, 0), (3, 0))])
def test_a_request_that_does_not_fit_says_so(counts):
    assert run(counts)[1].any()


def test_a_row_that_nobody_asked_for_is_not_touched():
    """Zeros come to a place that no pair leads to; they are no request for its row 0."""
    _, overflowed, ids, _ = run(((0, 0), (2, 0)), np.array([[1, -1], [1, -1]], np.int32))
    assert not overflowed.any()
    assert [set(own[own >= 0].tolist()) for own in ids] == [{HOMES[1]}, set()]


def test_pairs_at_a_distance_share_a_permutation_and_others_have_none():
    exchange = Pairwise(((0, 0, 2), (0, 0, 0), (0, 3, 0)), ("d",))
    assert exchange.distances == ((3, ((0, 2), (2, 1))),)
    assert exchange.num_rows == 6


def test_a_joint_placement_numbers_the_rows_of_all_types_at_a_place():
    assert PLACEMENT.rows == {"a": 6, "b": 6}
    np.testing.assert_array_equal(PLACEMENT.homes["a"], [6, 0, 7, 1, 2])
    np.testing.assert_array_equal(PLACEMENT.homes["b"], [3, 4, 5])
    for name, table in TABLES.items():
        np.testing.assert_array_equal(PLACEMENT.whole(name, JOINED), table)
