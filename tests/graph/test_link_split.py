"""Link splits: no held-out edge is left in the graph in any guise, and nothing else is taken away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_split import edge_positions, link_split, message_graph, reverses
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation

LIKES, KNOWS, LIKED = Relation("a", "likes", "b"), Relation("a", "knows", "a"), Relation("b", "liked_by", "a")
A, B = 9, 7


@st.composite
def graphs(draw, published: bool | None = None):
    """Likes with parallel edges and, as drawn, a reverse relation of any name; `knows` symmetric or not."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count = draw(st.integers(12, 40))
    senders, receivers = rng.integers(0, A, count), rng.integers(0, B, count)
    first, second = rng.integers(0, A, 14), rng.integers(0, A, 14)
    if draw(st.booleans()):
        first, second = np.concatenate([first, second]), np.concatenate([second, first])
    edges = {LIKES: (senders, receivers), KNOWS: (first, second)}
    if draw(st.booleans()):
        edges[LIKED] = (receivers, senders)
    links = None
    if draw(st.booleans()) if published is None else published:
        triples = np.unique(np.stack([senders, np.zeros_like(senders), receivers], axis=1), axis=0).astype(np.int32)
        order = rng.permutation(len(triples))
        parts = {"val": triples[order[:2]], "test": triples[order[2:5]], "train": triples[order[3:]]}  # two overlap
        links = LinkTriples((LIKES,), parts)
    return HeteroGraph.from_arrays(num_nodes={"a": A, "b": B}, edges=edges, links=links)


def pairs(graph: HeteroGraph, relation: Relation) -> list[tuple[int, int]]:
    edges = graph.edges[relation]
    return list(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))


@given(graphs(), st.integers(0, 100), st.sampled_from([("likes",), ("knows",)]))
def test_held_out_edges_leave_the_graph_forwards_backwards_and_in_parallel(graph, seed, relations):
    if graph.links is not None:
        relations = ()
    split = link_split(graph, relations, val_share=0.2, test_share=0.2, seed=seed)
    seen = message_graph(graph, split)
    with_reverses = seen.with_reverse_relations()
    (target,) = split.relations
    held_out = {(h, t) for name in ("val", "test") for h, _, t in split.triples[name].tolist()}
    backwards = reverses(graph, target)
    for relation in with_reverses.schema.relations:
        left = set(pairs(with_reverses, relation))
        if relation == target:
            assert not left & held_out
        if relation in backwards or relation == target.reversed():
            assert not left & {(t, h) for h, t in held_out}
    # All else stays.
    for relation in graph.schema.relations:
        gone = set(pairs(graph, relation)) - set(pairs(seen, relation))
        allowed = (held_out if relation == target else set()) | (
            {(t, h) for h, t in held_out} if relation in backwards else set()
        )
        assert gone <= allowed
    # Splits are disjoint, in both directions where those mean the same.
    train = {(h, t) for h, _, t in split.triples["train"].tolist()}
    assert not train & held_out
    if target in backwards:
        assert not train & {(t, h) for h, t in held_out}
    assert not {tuple(x) for x in split.triples["val"].tolist()} & {tuple(x) for x in split.triples["test"].tolist()}


@given(graphs(published=False), st.integers(0, 50))
def test_a_drawn_split_covers_every_link_once_and_repeats_with_the_seed(graph, seed):
    first, second = (link_split(graph, ["a:likes:b"], val_share=0.1, test_share=0.3, seed=seed) for _ in range(2))
    joined = np.concatenate([first.triples[name] for name in ("train", "val", "test")])
    expected = sorted(set(pairs(graph, LIKES)))
    assert sorted((h, t) for h, _, t in joined.tolist()) == expected
    assert len(first.triples["test"]) == max(1, int(0.3 * len(expected)))
    for name in first.triples:
        np.testing.assert_array_equal(first.triples[name], second.triples[name])


@given(graphs(published=False))
def test_edge_positions_find_every_parallel_edge(graph):
    edges = graph.edges[LIKES]
    wanted = np.unique(np.stack([edges.senders, edges.receivers], axis=1), axis=0)[::2]
    numbers, positions = edge_positions(edges, wanted[:, 0], wanted[:, 1])
    expected = [
        (number, position)
        for number, (sender, receiver) in enumerate(wanted.tolist())
        for position, pair in enumerate(pairs(graph, LIKES))
        if pair == (sender, receiver)
    ]
    assert sorted(zip(numbers.tolist(), positions.tolist(), strict=True)) == sorted(expected)


def small(**changes) -> HeteroGraph:
    whole = {
        "num_nodes": {"a": 3, "b": 2},
        "edges": {LIKES: (np.arange(3), np.zeros(3, int)), KNOWS: (np.arange(2), np.arange(1, 3))},
    } | changes
    return HeteroGraph.from_arrays(**whole)


def triples(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, np.int32).reshape(-1, 3)


@pytest.mark.parametrize(
    ("relations", "message"),
    [
        ((), "has no link split: name the relation in task.relations; known: a:likes:b, a:knows:a"),
        (("hates",), "'hates' is unknown; known: a:likes:b, a:knows:a"),
        (("knows",), "hold 2 links; too few to hold out 2 of them"),
    ],
)
def test_wrong_relations_are_refused(relations, message):
    with pytest.raises(InputError, match=message):
        link_split(small(), relations, val_share=0.1, test_share=0.1, seed=0)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (LinkTriples((LIKED,), {}), "links of 'b:liked_by:a', which is no relation of the graph"),
        (LinkTriples((LIKES,), {"dev": triples()}), "split 'dev' of links is unknown"),
        (LinkTriples((LIKES,), {"val": triples((0, 1, 0))}), "val links name a relation outside 0 to 0"),
        (LinkTriples((LIKES,), {"val": triples((0, 0, 1))}), "val link 0 -> 1 of 'a:likes:b' is no edge"),
        (LinkTriples((LIKES,), {"val": np.zeros((2, 2), np.int32)}), "need int32"),
    ],
)
def test_wrong_links_are_refused(links, message):
    with pytest.raises(InputError, match=message):
        small(links=links)
