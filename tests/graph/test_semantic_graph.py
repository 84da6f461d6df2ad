"""SemanticGraph: two directions and the views agree, parallel edges included."""

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph.semantic_graph import VIEWS, SemanticGraph


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int]:
    num_sources, num_targets = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    edge = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    edges = np.array(draw(st.lists(edge, max_size=40)), np.int64).reshape(-1, 2)
    return edges[:, 0], edges[:, 1], num_sources, num_targets


@hypothesis.given(pairs())
def test_directions_and_views_hold_the_same_edges(case: tuple[np.ndarray, np.ndarray, int, int]) -> None:
    senders, receivers, num_sources, num_targets = case
    expected = np.zeros((num_targets, num_sources), np.int64)
    np.add.at(expected, (receivers, senders), 1)
    graph = SemanticGraph.from_pairs(senders, receivers, num_sources, num_targets, "pairs").with_views(VIEWS)
    assert graph.num_edges == len(senders)
    np.testing.assert_array_equal(graph.adjacency, expected)
    assert graph.coo is not None
    incoming, outgoing = np.zeros_like(expected), np.zeros_like(expected)
    np.add.at(incoming, (graph.coo.receivers, graph.incoming.indices), 1)
    np.add.at(outgoing, (graph.outgoing.indices, graph.coo.senders), 1)
    np.testing.assert_array_equal(incoming, expected)
    np.testing.assert_array_equal(outgoing, expected)
    position = graph.coo.incoming_position
    np.testing.assert_array_equal(np.sort(position), np.arange(graph.num_edges))
    np.testing.assert_array_equal(graph.incoming.indices[position], graph.coo.senders)
    np.testing.assert_array_equal(graph.coo.receivers[position], graph.outgoing.indices)
    for leaf in jax.tree.leaves(graph):
        assert leaf.dtype == (np.uint8 if leaf is graph.adjacency else np.int32)


@hypothesis.given(pairs())
def test_parallel_edges_keep_their_order_in_the_out_edges(case: tuple[np.ndarray, np.ndarray, int, int]) -> None:
    graph = SemanticGraph.from_pairs(*case).with_views(("coo",))
    assert graph.coo is not None
    order = np.argsort(graph.incoming.indices, kind="stable")
    np.testing.assert_array_equal(graph.coo.incoming_position, order)


def test_views_are_dropped_when_not_asked_for() -> None:
    graph = SemanticGraph.from_pairs(np.array([0]), np.array([1]), 2, 2).with_views(VIEWS).with_views(())
    assert graph.coo is None
    assert graph.adjacency is None
    assert graph.density == 0.25


def test_wrong_ids_and_too_many_parallel_edges_are_refused() -> None:
    with pytest.raises(InputError, match="has a sender outside 0 to 1"):
        SemanticGraph.from_pairs(np.array([2]), np.array([0]), 2, 2, "wrong")
    many = SemanticGraph.from_pairs(np.zeros(256, int), np.zeros(256, int), 1, 1, "many")
    with pytest.raises(InputError, match="joins two nodes by 256 parallel edges"):
        many.with_views(("adjacency",))
    most = SemanticGraph.from_pairs(np.zeros(255, int), np.zeros(255, int), 1, 1).with_views(("adjacency",))
    assert most.adjacency is not None
    assert most.adjacency[0, 0] == 255
