"""Rows cut over an axis: fetched from whoever keeps them, and gradients given back there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.placement import Placement
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.stores.exchange import AllToAll
from jhgnn.stores.sharded import ShardedRows

IDS = {
    "a": np.array([[0, 5, -1, 3], [5, 5, 2, -1], [-1, -1, -1, -1]], np.int32),  # the last place asks for nothing
    "b": np.array([[1], [0], [1]], np.int32),
}
PARTS = {"a": np.array([2, 0, 1, 0, 2, 0], np.int32), "b": np.array([1, 1], np.int32)}  # "b" lives at one place


@pytest.fixture(scope="module")
def tables():
    dense = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    rows = SparseRows.from_scipy(sparse.csr_array(np.array([[0, 2.0, 1], [3, 0, 0]], np.float32)))
    return {"a": dense, "b": rows}


def run(tables, capacities, ids=IDS):
    placement = Placement.of(Assignment(3, PARTS, "given"))
    cut = {name: jax.tree.map(lambda leaf, n=name: placement.cut(n, leaf), table) for name, table in tables.items()}

    homes = {name: jnp.asarray(own) for name, own in placement.homes.items()}

    def both(own, ids):
        store = ShardedRows(own, homes, AllToAll(FrozenCounts.of(capacities), 3, "d"))
        found = store.fetch(ids)
        gradients = {"a": jnp.where((ids["a"] >= 0)[:, None], found.rows["a"], 0.0)}
        return found.rows, found.overflowed, store.give_back(found.routes, gradients)

    return placement, jax.jit(jax.vmap(both, axis_name="d"))(cut, ids)


def test_every_place_gets_its_rows_and_owners_the_summed_gradients(tables):
    placement, (rows, overflowed, summed) = run(tables, {"a": 2, "b": 1})
    assert not np.asarray(overflowed).any()
    known = IDS["a"] >= 0
    np.testing.assert_array_equal(np.asarray(rows["a"])[known], tables["a"][IDS["a"][known]])
    for leaf, table in zip(jax.tree.leaves(rows["b"]), jax.tree.leaves(tables["b"]), strict=True):
        np.testing.assert_array_equal(np.asarray(leaf), table[IDS["b"]])
    expected = np.zeros_like(tables["a"])
    np.add.at(expected, IDS["a"][known], tables["a"][IDS["a"][known]])
    cut = np.zeros((3, placement.rows["a"], 3), np.float32)
    for place in range(3):
        own = np.asarray(summed["a"].ids[place])
        assert len(set(own[own >= 0])) == (own >= 0).sum()
        cut[place, own[own >= 0]] = np.asarray(summed["a"].gradients[place])[own >= 0]
    np.testing.assert_allclose(placement.whole("a", cut), expected, rtol=1e-6)


@pytest.mark.parametrize("capacities", [{"a": 1, "b": 1}, {"a": 2}])
def test_a_request_that_does_not_fit_says_so(tables, capacities):
    _, (_, overflowed, _) = run(tables, capacities)
    assert np.asarray(overflowed).any()
