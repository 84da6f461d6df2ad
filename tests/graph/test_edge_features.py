"""Features of edges: they stay with their edges, and what layers read of them holds every edge once."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.data import load_graph, save_graph
from jhgnn.errors import InputError
from jhgnn.graph.content_digest import content
from jhgnn.graph.edge_features import mean_features, split_senders
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph

NUM_SOURCES, NUM_TARGETS = 5, 4


@st.composite
def featured(draw) -> EdgeSet:
    """Edges, parallel ones too, whose features repeat; some receivers and senders have none."""
    count = draw(st.integers(0, 30))
    ids = st.lists(st.integers(0, NUM_TARGETS - 1), min_size=count, max_size=count)
    senders, receivers = np.array(draw(ids), int), np.array(draw(ids), int)
    values = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 3.0]), min_size=2 * count, max_size=2 * count)
    features = np.array(draw(values), np.float32).reshape(count, 2)
    return EdgeSet.from_pairs(senders, receivers, NUM_TARGETS, features=features)


def told(edges: EdgeSet) -> Counter:
    return Counter(zip(edges.senders.tolist(), edges.receivers.tolist(), map(tuple, edges.features), strict=True))


@given(featured())
def test_split_senders_hold_every_edge_once_with_its_features(edges):
    graph, found = split_senders(edges)
    senders, receivers = graph.incoming.indices, np.repeat(np.arange(NUM_TARGETS), np.diff(graph.incoming.indptr))
    rows = map(tuple, found.rows[senders])
    assert Counter(zip(found.senders[senders].tolist(), receivers.tolist(), rows, strict=True)) == told(edges)
    assert found.rows.dtype == np.float32
    assert found.width == 2
    np.testing.assert_array_equal(graph.sender_ids, found.senders)
    assert (np.diff(found.senders) >= 0).all()
    pairs = [*zip(found.senders.tolist(), map(tuple, found.rows), strict=True)]
    assert len(set(pairs)) == len(pairs) == graph.num_sources


@given(featured())
def test_means_are_those_of_in_edges(edges):
    found = mean_features(edges)
    for node in range(NUM_TARGETS):
        own = edges.features[edges.indptr[node] : edges.indptr[node + 1]]
        np.testing.assert_allclose(found.rows[node], own.mean(axis=0) if len(own) else 0.0, rtol=1e-6, atol=1e-6)
    assert found.rows.shape == (NUM_TARGETS, 2)


@given(featured(), st.randoms(use_true_random=False))
def test_features_stay_with_their_edges(edges, random):
    back = edges.reversed(NUM_SOURCES)
    turned = Counter({(sender, receiver, row): n for (receiver, sender, row), n in told(back).items()})
    assert turned == told(edges)
    keep = np.array([random.random() < 0.5 for _ in range(edges.num_edges)], bool)
    chosen = edges.chosen(keep)
    np.testing.assert_array_equal(chosen.features, edges.features[keep])


def graph_of(features, *, senders=(2, 0, 1), weights=None) -> HeteroGraph:
    edges = {("a", "to", "b"): (np.array(senders), np.array([1, 1, 0]), weights, features)}
    return HeteroGraph.from_arrays(num_nodes={"a": 3, "b": 2}, edges=edges)


def test_arrays_keep_the_order_of_edges():
    (edges,) = graph_of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).edges.values()
    np.testing.assert_array_equal(edges.senders, [1, 0, 2])
    np.testing.assert_array_equal(edges.features, [[5, 6], [3, 4], [1, 2]])
    assert edges.weights is None


def test_what_is_wrong_is_named():
    for features, message in (
        ([[1.0], [2.0]], r"features of 'a:to:b' have shape \(2, 1\); need 3 rows"),
        ([1.0, 2.0, 3.0], r"features of 'a:to:b' have shape \(3,\); need 3 rows"),
        ([[1.0], [np.nan], [2.0]], r"features of 'a:to:b': nan at row 1; need finite numbers"),
        ([["x"], ["y"], ["z"]], r"features of 'a:to:b' are <U1; need numbers"),
    ):
        with pytest.raises(InputError, match=message):
            graph_of(features)


def test_a_saved_graph_keeps_them_and_says_what_is_damaged(tmp_path):
    graph = graph_of(np.arange(6.0).reshape(3, 2), weights=np.array([1.0, 2.0, 3.0]))
    path = save_graph(graph, tmp_path / "graph")
    (edges,), (read,) = graph.edges.values(), load_graph(path).edges.values()
    np.testing.assert_array_equal(read.features, edges.features)
    np.save(path / "relation0_features.npy", np.float32([[1], [2], [3]]))
    with pytest.raises(InputError, match=r"relation0_features\.npy has 1 columns; need 2"):
        load_graph(path)
    np.save(path / "relation0_features.npy", np.float32([[1, 2], [np.inf, 2], [3, 4]]))
    with pytest.raises(InputError, match=r"relation0_features\.npy is not finite in row 1"):
        load_graph(path)


def test_the_digest_tells_them_apart():
    graph = graph_of(np.zeros((3, 1)))
    (relation,) = graph.edges
    bare = dataclasses.replace(graph.edges[relation], features=None)
    other = dataclasses.replace(graph.edges[relation], features=np.ones((3, 1), np.float32))
    digests = [content(dataclasses.replace(graph, edges={relation: own})) for own in (bare, other)]
    assert len({str(each) for each in (content(graph), *digests)}) == 3
