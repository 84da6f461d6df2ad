"""Ways to assign nodes to parts: balance is a promise, few cut edges a comparison with random parts."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.distributed.adjacency import adjacency
from jhgnn.distributed.assignment import Assignment, strata
from jhgnn.distributed.methods.capacity import choose_with_room, fair_room
from jhgnn.distributed.methods.metapath import metapath_assignment
from jhgnn.distributed.methods.metis import metis_assignment
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.methods.target_balance import balance_targets
from jhgnn.distributed.quality import assess, balance
from jhgnn.errors import InputError
from jhgnn.graph.default_metapaths import default_metapaths
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.distributed.graphs import communities, graphs_in_parts, random_graph


@st.composite
def requests(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = draw(st.integers(0, 30)), draw(st.integers(1, 5))
    scores = np.random.default_rng(draw(st.integers(0, 999))).integers(0, 4, (rows, columns)).astype(np.float32)
    room = np.array(draw(st.lists(st.integers(0, 12), min_size=columns, max_size=columns)))
    room[draw(st.integers(0, columns - 1))] += max(0, rows - int(room.sum()))
    return scores, room


@given(requests())
def test_no_column_gets_more_rows_than_it_has_room_for(case):
    scores, room = case
    chosen = choose_with_room(scores, room)
    assert (np.bincount(chosen, minlength=len(room)) <= room).all()
    if len(scores) and (room >= len(scores)).all():
        assert (scores[np.arange(len(scores)), chosen] == scores.max(axis=1)).all()


def test_too_little_room_is_an_error():
    with pytest.raises(ValueError, match="3 rows ask for room; there is room for 2"):
        choose_with_room(np.zeros((3, 2), np.float32), np.array([1, 1]))


@given(st.integers(0, 999), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_random_parts_are_equal_to_within_one_node(graph_seed, num_parts, seed):
    graph = random_graph(graph_seed)
    assignment = random_assignment(graph, num_parts, seed)
    for node_type, groups in strata(graph).items():
        for group in np.unique(groups):
            counts = np.bincount(assignment.parts[node_type][groups == group], minlength=num_parts)
            assert counts.max() - counts.min() <= 1
    again = random_assignment(graph, num_parts, seed)
    assert all(np.array_equal(assignment.parts[name], again.parts[name]) for name in graph.num_nodes)


@given(graphs_in_parts(), st.floats(1.0, 2.0))
def test_targets_are_evened_out(case, tolerance):
    graph, assignment = case
    joined = adjacency(graph)
    evened = balance_targets(assignment, graph, joined, tolerance)
    groups = strata(graph)["paper"]
    for group in np.unique(groups):
        counts = np.bincount(evened.parts["paper"][groups == group], minlength=assignment.num_parts)
        assert (counts <= fair_room(int(counts.sum()), assignment.num_parts, tolerance)).all()
        before = np.bincount(assignment.parts["paper"][groups == group], minlength=assignment.num_parts)
        if (before <= fair_room(int(counts.sum()), assignment.num_parts, tolerance)).all():
            own = groups == group
            assert np.array_equal(evened.parts["paper"][own], assignment.parts["paper"][own])
    assert np.array_equal(evened.parts["author"], assignment.parts["author"])


def test_a_surplus_target_moves_to_its_neighbours():
    graph = communities(2, 20)
    parts = {"author": random_assignment(graph, 2).parts["author"], "paper": np.zeros(40, np.int32)}
    joined = adjacency(graph)
    evened = balance_targets(Assignment(2, parts, "x"), graph, joined, 1.0)
    drawn = Assignment(2, parts | {"paper": random_assignment(graph, 2).parts["paper"]}, "x")
    assert assess(graph, evened).cut_share < assess(graph, drawn).cut_share


@given(graphs_in_parts())
def test_adjacency_counts_edges_either_way(case):
    graph, _ = case
    joined = adjacency(graph)
    total = sum(graph.num_nodes.values())
    expected = np.zeros((total, total), int)
    for relation, edges in graph.edges.items():
        for sender, receiver in zip(edges.senders, edges.receivers, strict=True):
            ends = joined.first[relation.source] + sender, joined.first[relation.target] + receiver
            if ends[0] != ends[1]:
                expected[ends] += 1
                expected[ends[::-1]] += 1
    if expected.any():
        expected //= np.gcd.reduce(expected[expected > 0])
    assert np.array_equal(joined.matrix.toarray(), expected)


@given(graphs_in_parts())
def test_quality_counts_what_is_there(case):
    graph, assignment = case
    quality, parts = assess(graph, assignment), assignment.parts
    for relation, edges in graph.edges.items():
        ends = list(zip(edges.senders, edges.receivers, strict=True))
        for part in range(assignment.num_parts):
            into = [(s, r) for s, r in ends if parts[relation.target][r] == part]
            assert quality.edges[relation][part] == len(into)
            assert quality.cut[relation][part] == sum(parts[relation.source][s] != part for s, _ in into)
    for node_type in graph.num_nodes:
        for part in range(assignment.num_parts):
            senders = {
                int(sender)
                for relation, edges in graph.edges.items()
                if relation.source == node_type
                for sender, receiver in zip(edges.senders, edges.receivers, strict=True)
                if parts[relation.target][receiver] == part
            }
            assert quality.halo[node_type][part] == sum(parts[node_type][sender] != part for sender in senders)
    assert quality.targets["train"].sum() == len(graph.splits["train"])
    assert quality.feature_bytes["author"].sum() == graph.features["author"].nbytes
    assert quality.part_bytes.shape == (assignment.num_parts,)


def metis(graph: HeteroGraph, num_parts: int, seed: int) -> Assignment:
    pytest.importorskip("pymetis")
    return metis_assignment(graph, adjacency(graph), num_parts, seed)


def metapath(graph: HeteroGraph, num_parts: int, seed: int) -> Assignment:
    metapaths = default_metapaths(graph.schema, "paper")
    return metapath_assignment(graph, adjacency(graph), metapaths, num_parts, seed)


@pytest.mark.parametrize("method", [metis, metapath])
def test_communities_are_found(method):
    """One edge of ten leaves its community: three quarters of them, and of all edges where parts are random."""
    graph = communities()
    found, drawn = method(graph, 4, 0), random_assignment(graph, 4)
    assert assess(graph, drawn).cut_share > 0.7
    assert assess(graph, found).cut_share < 0.2
    train = np.bincount(found.parts["paper"][graph.splits["train"]], minlength=4)
    assert balance(train) < 1.1
    again = method(graph, 4, 0)
    assert all(np.array_equal(found.parts[name], again.parts[name]) for name in graph.num_nodes)


@pytest.mark.parametrize("method", [metis, metapath])
@pytest.mark.parametrize("num_parts", [1, 3, 7])
def test_graphs_of_any_shape_and_any_number_of_parts(method, num_parts):
    for seed in range(4):
        graph = random_graph(seed)
        assignment = method(graph, num_parts, seed)
        assignment.check(graph)
        assert assignment.num_parts == num_parts


def test_metis_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = communities()
    with pytest.raises(InputError, match=r"--method metis needs pymetis, .* pip install 'jhgnn\[partition\]'"):
        metis_assignment(graph, adjacency(graph), 2)


def test_label_propagation_needs_metapaths():
    graph = communities()
    with pytest.raises(InputError, match="graph 'communities' has no metapaths: use metis or random"):
        metapath_assignment(graph, adjacency(graph), (), 2)
