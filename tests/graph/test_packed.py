"""Packed graphs hold the edges of the graphs that they are made of, and nothing else."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.graph.packed import pack_attention, pack_means
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph

COUNTS = {"a": 7, "b": 40}
RELATIONS = {
    "a:x:b": Relation("a", "x", "b"),
    "b:y:b": Relation("b", "y", "b"),
    "b:z:a": Relation("b", "z", "a"),
    "b:none:b": Relation("b", "none", "b"),
}


@st.composite
def graphs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    found = {}
    for name, relation in RELATIONS.items():
        count = draw(st.sampled_from([1, 5, 90]))
        sizes = COUNTS[relation.source], COUNTS[relation.target]
        found[name] = SemanticGraph.from_pairs(*(rng.integers(0, size, count) for size in sizes), *sizes, name)
    return found


def edges_of(graph):
    """(sender, receiver) of every edge."""
    receivers = np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))
    return list(zip(graph.incoming.indices.tolist(), receivers.tolist(), strict=True))


def vertices(side):
    """(graph's name, node) of every slot."""
    return [(side.joined_names[number], node) for number, node in zip(side.number, side.ids, strict=True)]


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_attention_has_an_edge_for_each_and_sums_each_receiver_once(drawn):
    packed = pack_attention(drawn, RELATIONS, COUNTS, COUNTS)
    senders, receivers = vertices(packed.senders), vertices(packed.receivers)
    found = Counter()
    for sender, receiver in edges_of(packed.graph):
        assert senders[sender][0] == receivers[receiver][0]
        found[senders[sender][0], int(senders[sender][1]), int(receivers[receiver][1])] += 1
    assert found == Counter((name, *edge) for name, graph in drawn.items() for edge in edges_of(graph))
    first = {"a": 0, "b": COUNTS["a"]}
    summed = Counter((receivers[slot][0], int(receivers[slot][1]), row) for slot, row in edges_of(packed.into_rows))
    wanted = {
        (name, node, first[RELATIONS[name].target] + node)
        for name, graph in drawn.items()
        for _, node in edges_of(graph)
    }
    assert summed == Counter(wanted)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_means_lead_to_rows_and_know_their_degrees(drawn):
    packed = pack_means(drawn, RELATIONS, COUNTS, COUNTS)
    senders, first = vertices(packed.senders), {"a": 0, "b": COUNTS["a"]}
    found = Counter()
    for (sender, row), degree in zip(edges_of(packed.graph), packed.degrees.tolist(), strict=True):
        name, node = senders[sender]
        found[name, int(node), row - first[RELATIONS[name].target], degree] += 1
    wanted = Counter(
        (name, sender, receiver, int(np.diff(graph.incoming.indptr)[receiver]))
        for name, graph in drawn.items()
        for sender, receiver in edges_of(graph)
    )
    assert found == wanted


@pytest.mark.parametrize("pack", [pack_means, pack_attention])
def test_slots_are_those_of_nodes_with_an_edge(pack):
    graph = SemanticGraph.from_pairs(np.array([3, 3, 39]), np.array([1, 2, 1]), 40, 7, "b:z:a")
    packed = pack({"b:z:a": graph}, RELATIONS, COUNTS, {"a": 7})
    groups = packed.senders.groups["b"]
    assert groups.rows[groups.used].tolist() == [3, 39]
    assert packed.made.as_dict() == {"a": 7}
