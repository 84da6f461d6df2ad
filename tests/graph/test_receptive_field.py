"""The receptive field against a walk over sets of nodes, on random heterographs."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.graph.receptive_field import receptive_field
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.nn.layer_plan import plan_layers

RELATIONS = (Relation("a", "to", "b"), Relation("b", "to", "a"), Relation("a", "among", "a"), Relation("c", "to", "b"))


@st.composite
def heterographs(draw):
    """Node counts, edges by relation (parallel and isolated ones among them), targets of type `a`."""
    num_nodes = {name: draw(st.integers(1, 8)) for name in "abc"}
    edges = {}
    for relation in RELATIONS:
        pair = st.tuples(st.integers(0, num_nodes[relation.source] - 1), st.integers(0, num_nodes[relation.target] - 1))
        edges[str(relation)] = draw(st.lists(pair, max_size=15))
    targets = draw(st.sets(st.integers(0, num_nodes["a"] - 1), min_size=1))
    return num_nodes, edges, np.array(sorted(targets), np.int32)


def graphs_of(num_nodes, edges):
    return {
        str(relation): SemanticGraph.from_pairs(
            np.array([sender for sender, _ in edges[str(relation)]], np.int64),
            np.array([receiver for _, receiver in edges[str(relation)]], np.int64),
            num_nodes[relation.source],
            num_nodes[relation.target],
            str(relation),
        )
        for relation in RELATIONS
    }


@settings(max_examples=150, deadline=None)
@given(heterographs(), st.integers(1, 3), st.booleans())
def test_every_hop_has_what_the_one_before_it_reads(found, num_layers, reads_targets):
    num_nodes, edges, targets = found
    plans = plan_layers({str(each): each for each in RELATIONS}, ["a"], num_layers, reads_targets)
    whole = graphs_of(num_nodes, edges)
    field = receptive_field(plans, whole, num_nodes, "a", targets)

    met = {name: set() for name in "abc"}
    met["a"] = set(targets.tolist())
    num_edges = num_rows = all_of_it = 0
    for hop, plan in enumerate(reversed(plans)):
        made = {name: set(met[name]) for name in plan.makes}
        expected = {}
        for name, relation in plan.relations.items():
            into = [pair for pair in edges[name] if pair[1] in made[relation.target]]
            met[relation.source] |= {sender for sender, _ in into}
            num_edges += len(into)
            if into:
                expected[name] = Counter(into)
        graphs = field.graphs(hop, whole)
        assert set(graphs) == set(expected)
        for name, graph in graphs.items():
            senders = graph.sender_ids[graph.incoming.indices]
            receivers = graph.receiver_ids[np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))]
            assert Counter(zip(senders.tolist(), receivers.tolist(), strict=True)) == expected[name]
            for start, end in zip(graph.incoming.indptr[:-1], graph.incoming.indptr[1:], strict=True):
                assert (np.diff(graph.incoming.indices[start:end]) >= 0).all()
        for name in plan.makes:
            assert set(field.ids.get(name, np.zeros(0))[: field.counts[hop].get(name, 0)].tolist()) == made[name]
        for name in plan.reads:
            rows = field.ids.get(name, np.zeros(0))[: field.counts[hop + 1].get(name, 0)]
            assert sorted(rows.tolist()) == sorted(met[name])
        num_rows += sum(len(met[name]) for name in plan.reads)
        all_of_it += sum(num_nodes[name] for name in plan.reads) + sum(len(edges[name]) for name in plan.relations)
    np.testing.assert_array_equal(field.ids["a"][: len(targets)], targets)
    assert field.share == (num_edges + num_rows) / max(1, all_of_it)


def test_all_targets_of_a_joined_graph_reach_all_of_it():
    num_nodes = {"a": 3, "b": 2, "c": 2}
    edges = {"a:to:b": [(0, 0), (1, 1)], "b:to:a": [(0, 0), (1, 2)], "a:among:a": [(0, 1)], "c:to:b": [(0, 0), (1, 1)]}
    plans = plan_layers({str(each): each for each in RELATIONS}, ["a"], 2, True)
    field = receptive_field(plans, graphs_of(num_nodes, edges), num_nodes, "a", np.arange(3, dtype=np.int32))
    assert field.share == 1.0
    assert field.counts[-1] == num_nodes
