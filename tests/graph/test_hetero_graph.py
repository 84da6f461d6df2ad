"""HeteroGraph: what it refuses, and what it keeps under relabelling and reversal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.schema import Relation


def arrays(**changes):
    return {
        "num_nodes": {"paper": 4, "author": 2},
        "edges": {("paper", "by", "author"): (np.array([0, 1, 3]), np.array([1, 0, 1]))},
        "features": {"paper": np.eye(4)},
        "target": "paper",
        "labels": np.array([0, 1, -1, 1]),
        "splits": {"train": np.array([0]), "val": np.array([1]), "test": np.array([3])},
        **changes,
    }


def edges(senders, receivers, *weights):
    return {"edges": {("paper", "by", "author"): (np.array(senders), np.array(receivers), *weights)}}


BROKEN = [
    ({"num_nodes": {"paper": -1, "author": 2}}, r"'paper' has -1 nodes"),
    ({"num_nodes": {"paper": 4.5, "author": 2}}, r"'paper' has 4\.5 nodes"),
    ({"num_nodes": {"paper": 4, "au thor": 2}}, r"name 'au thor'"),
    ({"num_nodes": {"paper": 4}}, r"unknown node type 'author'"),
    (edges([0, 4], [0, 1]), r"senders of 'paper:by:author': id 4 at row 1 is out of range; need 0 to 3"),
    (edges([0, -1], [0, 1]), r"id -1 at row 1"),
    (edges([0.0], [0]), r"are float64; need integers"),
    (edges([0, 1], [0]), r"2 senders but 1 receivers"),
    (edges([[0]], [[0]]), r"need one dimension"),
    (edges([0], [0], np.array([1.0, 2.0])), r"1 edges but weights \(2,\)"),
    (edges([0], [0], np.array([np.nan])), r"weights of .*: nan at row 0"),
    ({"features": {"venue": np.eye(2)}}, r"unknown node type 'venue'; known: paper, author"),
    ({"features": {"paper": np.eye(3)}}, r"shape \(3, 3\); need 4 rows"),
    ({"features": {"paper": np.zeros((4, 0))}}, r"no columns"),
    ({"features": {"paper": np.full((4, 1), "x")}}, r"need numbers"),
    ({"features": {"paper": np.array([[0.0], [1.0], [np.inf], [0.0]])}}, r"inf at row 2"),
    ({"features": {"paper": np.full((4, 1), 1e300)}}, r"inf at row 0"),
    ({"features": {"paper": sparse.csr_array(([1.0, np.nan], ([0, 3], [0, 1])), shape=(4, 2))}}, r"nan at row 3"),
    ({"target": "venue"}, r"target 'venue' is not a node type"),
    ({"target": None}, r"without a target"),
    ({"labels": np.zeros(3, int)}, r"labels have shape \(3,\); need 4 rows"),
    ({"labels": np.array([0, 1, -2, 1])}, r"label -2 at row 2"),
    ({"labels": np.array([0, 5, 0, 1]), "num_classes": 3}, r"label 5 at row 1 is out of range; need -1 to 2"),
    ({"labels": np.array([0, 1, 2**30, 1])}, r"label 1073741824 at row 2 is out of range; need -1 to 1048575"),
    ({"labels": np.array([0, 1, 0, 1]), "num_classes": 2**31}, r"num_classes is 2147483648; need .* from 1 to 1048576"),
    ({"labels": np.array([0, 0.5, 0, 1])}, r"not whole numbers"),
    ({"labels": np.full((4, 2), 2)}, r"other than 0 and 1"),
    ({"labels": np.zeros((4, 2), int), "num_classes": 3}, r"2 columns but num_classes is 3"),
    ({"splits": {"dev": np.array([0])}}, r"split 'dev' is unknown"),
    ({"splits": {"train": np.array([], int)}}, r"split 'train' is empty"),
    ({"splits": {"train": np.zeros(4, bool)}}, r"split 'train' is empty"),
    ({"splits": {"train": np.zeros(3, bool)}}, r"mask of split 'train' has shape \(3,\)"),
    ({"splits": {"train": np.array([0, 0])}}, r"holds node 0 twice"),
    ({"splits": {"train": np.array([0]), "val": np.array([0])}}, r"node 0 is in 'val' and 'train'"),
    ({"splits": {"train": np.array([2])}}, r"unlabelled node 2"),
    ({"splits": {"train": np.array([9])}}, r"id 9 at row 0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BROKEN)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        HeteroGraph.from_arrays(**arrays(**changes), where="file.x")
    assert "\n" not in str(caught.value)


def test_arrays_are_compressed_by_receiver():
    graph = HeteroGraph.from_arrays(**arrays(**edges([3, 1, 0, 3], [1, 0, 1, 1], np.array([4.0, 3, 2, 1]))))
    (edge_set,) = graph.edges.values()
    np.testing.assert_array_equal(edge_set.indptr, [0, 1, 4])
    np.testing.assert_array_equal(edge_set.senders, [1, 0, 3, 3])
    np.testing.assert_array_equal(edge_set.receivers, [0, 1, 1, 1])
    np.testing.assert_array_equal(edge_set.weights, [3, 2, 4, 1])  # parallel edges keep their order
    assert (graph.num_edges, edge_set.num_targets) == (4, 2)
    assert {split: ids.tolist() for split, ids in graph.splits.items()} == {"train": [0], "val": [1], "test": [3]}


def test_empty_relation_and_type():
    graph = HeteroGraph.from_arrays(num_nodes={"a": 0, "b": 2}, edges={("a", "r", "b"): (np.array([]), np.array([]))})
    (edge_set,) = graph.edges.values()
    np.testing.assert_array_equal(edge_set.indptr, [0, 0, 0])
    assert graph.with_reverse_relations().num_edges == 0


@st.composite
def pair_lists(draw):
    sources, targets, count = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(0, 30))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    weights = rng.random(count) if draw(st.booleans()) else None
    return rng.integers(0, sources, count), rng.integers(0, targets, count), sources, targets, weights


def triples(edge_set):
    weights = edge_set.weights if edge_set.weights is not None else np.ones(edge_set.num_edges)
    return sorted(zip(edge_set.senders.tolist(), edge_set.receivers.tolist(), weights.tolist(), strict=True))


@given(pair_lists())
def test_edge_sets_keep_every_edge(drawn):
    senders, receivers, _, targets, weights = drawn
    edge_set = EdgeSet.from_pairs(senders, receivers, targets, weights)
    kept = np.ones(len(senders)) if weights is None else weights.astype(np.float32)
    assert triples(edge_set) == sorted(zip(senders.tolist(), receivers.tolist(), kept.tolist(), strict=True))
    for start, end in zip(edge_set.indptr, edge_set.indptr[1:], strict=False):
        assert (np.diff(edge_set.senders[start:end]) >= 0).all()


@given(pair_lists())
def test_reversed_twice_is_the_same(drawn):
    senders, receivers, sources, targets, weights = drawn
    edge_set = EdgeSet.from_pairs(senders, receivers, targets, weights)
    back = edge_set.reversed(sources)
    assert sorted((b, a, w) for a, b, w in triples(back)) == triples(edge_set)
    twice = back.reversed(targets)
    assert twice.joins_as(edge_set)
    assert triples(twice) == triples(edge_set)


@given(pair_lists(), st.integers(0, 999))
def test_relabelling_nodes_relabels_edges(drawn, seed):
    senders, receivers, sources, targets, weights = drawn
    rng = np.random.default_rng(seed)
    new_source, new_target = rng.permutation(sources), rng.permutation(targets)
    plain = EdgeSet.from_pairs(senders, receivers, targets, weights)
    renamed = EdgeSet.from_pairs(new_source[senders], new_target[receivers], targets, weights)
    assert triples(renamed) == sorted((int(new_source[a]), int(new_target[b]), w) for a, b, w in triples(plain))
    np.testing.assert_array_equal(np.diff(renamed.indptr)[new_target], np.diff(plain.indptr))


def reversible():
    cites = (np.array([0, 1, 2]), np.array([1, 2, 0]))
    return HeteroGraph.from_arrays(
        num_nodes={"paper": 3, "author": 2, "venue": 1},
        edges={
            ("paper", "cites", "paper"): cites,
            ("paper", "is_cited_by", "paper"): cites[::-1],
            ("paper", "follows", "paper"): (np.array([0]), np.array([2])),
            ("paper", "near", "paper"): (np.array([0, 1]), np.array([1, 0])),
            ("paper", "by", "author"): (np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0])),
            ("author", "wrote", "paper"): (np.array([0]), np.array([1])),
            ("paper", "in", "venue"): (np.array([0, 2]), np.array([0, 0]), np.array([3.0, 4.0])),
        },
    )


def test_reverses_only_where_nothing_goes_back():
    graph = reversible().with_reverse_relations()
    added = [str(relation) for relation in graph.edges if relation.name.startswith("rev_")]
    # `cites` and `is_cited_by` are each other's reverse, `near` is its own, `wrote` goes back from authors.
    assert added == ["paper:rev_follows:paper", "venue:rev_in:paper"]
    assert triples(graph.edges[graph.schema.relations[-1]]) == [(0, 0, 3.0), (0, 2, 4.0)]
    assert graph.schema.relations == tuple(graph.edges)


def test_reverses_twice_are_the_same():
    once = reversible().with_reverse_relations()
    twice = once.with_reverse_relations()
    assert list(once.edges) == list(twice.edges)
    for relation, edge_set in once.edges.items():
        assert twice.edges[relation] is edge_set


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(0, 30))
def test_weights_and_times_stay_with_their_edges(seed, size):
    """Compressed, reversed and thinned; parallel edges keep their order."""
    rng = np.random.default_rng(seed)
    senders, receivers = rng.integers(0, 3, size), rng.integers(0, 4, size)
    weights, times = np.arange(size, dtype=np.float32), np.arange(size) - 7
    edge_set = EdgeSet.from_pairs(senders, receivers, 4, weights, times)
    rows = [*zip(edge_set.receivers, edge_set.senders, edge_set.weights, edge_set.times, strict=True)]
    assert rows == sorted(zip(receivers, senders, weights, times, strict=True))
    back = edge_set.reversed(3)
    assert sorted(zip(back.senders, back.receivers, back.weights, back.times, strict=True)) == rows
    keep = rng.random(size) < 0.5
    thin = edge_set.chosen(keep)
    assert [*zip(thin.receivers, thin.senders, thin.weights, thin.times, strict=True)] == [
        row for row, kept in zip(rows, keep, strict=True) if kept
    ]


def test_times_of_all_kinds_and_edge_sets_as_they_are():
    whole = EdgeSet.from_pairs(np.array([0, 3]), np.array([1, 0]), 2, times=np.array([5, 6]))
    relation = Relation("paper", "by", "author")
    graph = HeteroGraph.from_arrays(**arrays(edges={relation: whole}, node_times={"author": np.array([1, 2])}))
    assert graph.edges[relation] is whole
    assert {key: times.tolist() for key, times in graph.times.items()} == {"author": [1, 2], relation: [6, 5]}
    both = graph.with_reverse_relations()
    assert both.times[relation.reversed()].tolist() == [5, 6]
    for edge_set, expected in (
        (EdgeSet.from_pairs(np.array([4]), np.array([0]), 2), "id 4 at row 0 is out of range"),
        (EdgeSet.from_pairs(np.array([0]), np.array([0]), 3), "compressed for 3 receivers"),
        (EdgeSet.from_pairs(np.array([0]), np.array([0]), 2, np.array([np.inf])), "inf at row 0"),
    ):
        with pytest.raises(InputError, match=expected):
            HeteroGraph.from_arrays(**arrays(edges={relation: edge_set}))
