"""Means of neighbours against a loop in float64, the store that keeps them, and their homes on a mesh."""

import numpy as np
import pytest

from jhgnn.distributed.placement import Placement
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.stores import hot
from jhgnn.stores.hot import HotRows, neighbor_means


@pytest.fixture(scope="module")
def edges() -> EdgeSet:
    """Hubs of more than two runs of edges, vertices of one edge and of none, parallel edges."""
    rng = np.random.default_rng(0)
    degrees = np.array([700, 0, 1, 3, 256, 257, 2, 40, 0, 513])
    receivers = np.repeat(np.arange(10), degrees)
    return EdgeSet.from_pairs(rng.integers(0, 60, len(receivers)), receivers, 10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 2e-6)])
def test_means_are_those_of_a_loop(edges, dtype, tolerance, monkeypatch):
    table = np.random.default_rng(1).normal(size=(60, 5)).astype(dtype)
    receivers = np.array([0, 2, 3, 4, 5, 6, 7, 9], np.int32)
    expected = [
        table[edges.senders[edges.indptr[v] : edges.indptr[v + 1]]].astype(np.float64).mean(0) for v in receivers
    ]
    whole = neighbor_means(edges, receivers, table)
    assert whole.dtype == dtype
    np.testing.assert_allclose(whole, expected, rtol=0, atol=tolerance)
    monkeypatch.setattr(hot, "CHUNK_EDGES", 300)
    np.testing.assert_array_equal(neighbor_means(edges, receivers, table, threads=3), whole)


def test_no_receivers_have_no_means(edges):
    assert neighbor_means(edges, np.zeros(0, np.int32), np.ones((60, 5), np.float32)).shape == (0, 5)


def test_the_store_gives_rows_means_and_zeros():
    rng = np.random.default_rng(2)
    tables = {"a": rng.normal(size=(6, 3)).astype(np.float32), "b": rng.normal(size=(4, 2)).astype(np.float32)}
    store = HotRows(tables, {"a": rng.normal(size=(5, 3)).astype(np.float32)})
    ids = np.array([[0, 10, -1], [6, 5, 7]], np.int32)
    joined = np.concatenate([store.joined()["a"], np.zeros((1, 3), np.float32)])
    np.testing.assert_array_equal(store.gather("a", ids), joined[ids])
    np.testing.assert_array_equal(store.gather("b", ids % 4), tables["b"][ids % 4])
    assert store.joined() is store.joined()
    assert store.nbytes == 4 * (6 * 3 + 4 * 2 + 5 * 3)


def test_rows_that_are_added_have_homes_of_their_own():
    homes = {"a": np.array([0, 3, 4, 1], np.int32), "b": np.array([0, 1], np.int32)}
    placement = Placement(2, {"a": 3, "b": 1}, homes, "random")
    more = placement.with_more({"a": np.array([1, 1, 0, 1], np.int32)})
    assert more.rows == {"a": 6, "b": 1}
    np.testing.assert_array_equal(more.homes["b"], homes["b"])
    np.testing.assert_array_equal(more.places("a", np.arange(8)), [0, 1, 1, 0, 1, 1, 0, 1])
    table = np.arange(16.0).reshape(8, 2)
    cut = more.cut("a", table)
    assert cut.shape == (2, 6, 2)
    np.testing.assert_array_equal(more.whole("a", cut), table)
    # Rows that were there keep their place and their number there.
    np.testing.assert_array_equal(cut[:, :3], placement.cut("a", table[:4]))
