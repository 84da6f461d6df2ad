import dataclasses
import sys

import jax
import jraph
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.data.interop import TypedGraphsTuple, from_jraph, to_jraph
from jhgnn.data.synthetic import generate
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation
from tests.data.interop_graphs import assert_same_graph, random_graph


@given(seed=st.integers(0, 2**32 - 1), multi_label=st.booleans(), empty=st.booleans())
def test_round_trip_is_exact(seed: int, multi_label: bool, empty: bool) -> None:
    graph = random_graph(seed, multi_label=multi_label, empty=empty)
    assert_same_graph(from_jraph(to_jraph(graph)), graph)


@given(seed=st.integers(0, 2**32 - 1))
def test_edges_may_stand_in_any_order(seed: int) -> None:
    graph = random_graph(seed)
    if any(edge_set.weights is not None for edge_set in graph.edges.values()):
        return  # weights of parallel edges follow the order they come in
    typed = to_jraph(graph)
    flat = typed.graph
    order = np.random.default_rng(seed).permutation(len(flat.senders))
    shuffled = flat._replace(
        senders=flat.senders[order],
        receivers=flat.receivers[order],
        edges=jax.tree.map(lambda leaf: leaf[order], flat.edges),
    )
    assert_same_graph(from_jraph(dataclasses.replace(typed, graph=shuffled)), graph)


def test_without_labels_weights_or_splits() -> None:
    graph = HeteroGraph.from_arrays(num_nodes={"a": 2, "b": 1}, edges={("a", "r", "b"): (np.array([1]), np.array([0]))})
    typed = to_jraph(graph)
    assert set(typed.graph.nodes) == {"type"}
    assert set(typed.graph.edges) == {"type"}
    back = from_jraph(typed)
    assert (back.labels, back.target, back.splits, back.num_classes) == (None, None, {}, 0)
    assert back.edges[Relation("a", "r", "b")].weights is None


def test_jraph_works_on_it() -> None:
    """Mean of neighbours along one relation, with jraph's padding, against a plain loop."""
    graph = generate("acm", scale=0.05)
    typed = to_jraph(graph)
    padded = jraph.pad_with_graphs(typed.graph, n_node=1000, n_edge=2048)
    assert int(jraph.get_number_of_padding_with_graphs_graphs(padded)) == 1
    kind = typed.relations.index(Relation("author", "writes", "paper"))
    chosen = np.asarray(padded.edges["type"] == kind) & np.asarray(jraph.get_edge_padding_mask(padded))
    degrees = jraph.segment_sum(chosen.astype(np.float32), padded.receivers, 1000)
    start, stop = typed.node_range("paper")
    want = np.diff(graph.edges[Relation("author", "writes", "paper")].indptr)
    np.testing.assert_array_equal(np.asarray(degrees)[start:stop], want)
    assert stop - start == graph.num_nodes["paper"]
    unpadded = jraph.unpad_with_graphs(padded)
    assert_same_graph(from_jraph(dataclasses.replace(typed, graph=unpadded)), graph)


def test_a_hand_made_tuple_is_read() -> None:
    flat = jraph.GraphsTuple(
        nodes={"type": np.array([0, 0, 1])},
        edges={"type": np.array([0, 0]), "weight": np.array([0.5, 2.0])},
        senders=np.array([1, 0]),
        receivers=np.array([2, 2]),
        globals=None,
        n_node=np.array([3]),
        n_edge=np.array([2]),
    )
    graph = from_jraph(TypedGraphsTuple(flat, ("user", "item"), (Relation("user", "buys", "item"),)))
    assert graph.num_nodes == {"user": 2, "item": 1}
    np.testing.assert_array_equal(graph.edges[Relation("user", "buys", "item")].senders, [0, 1])
    np.testing.assert_array_equal(graph.edges[Relation("user", "buys", "item")].weights, [2.0, 0.5])


def _batched(typed):
    return dataclasses.replace(typed, graph=jraph.batch([typed.graph, typed.graph]))


def _with(typed, **changes):
    return dataclasses.replace(typed, graph=typed.graph._replace(**changes))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_batched, "holds 2 graphs; need one"),
        (lambda t: _with(t, nodes={}), "nodes have no 'type' array"),
        (lambda t: _with(t, edges=None), "edges have no 'type' array"),
        (lambda t: _with(t, nodes={**t.graph.nodes, "type": t.graph.nodes["type"][::-1]}), "not in ascending blocks"),
        (lambda t: _with(t, nodes={**t.graph.nodes, "type": t.graph.nodes["type"] + 1}), "type 3 is out of range"),
        (lambda t: _with(t, nodes={**t.graph.nodes, "type": t.graph.nodes["type"][1:]}), "'type' has shape"),
        (lambda t: _with(t, senders=t.graph.receivers), "senders of 'author:writes:paper': id"),
        (lambda t: _with(t, senders=t.graph.senders[1:]), "senders have shape"),
        (lambda t: dataclasses.replace(t, relations=(Relation("author", "writes", "book"),) * 4), "unknown node type"),
    ],
)
def test_broken_tuples_are_refused_in_one_line(break_it, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        from_jraph(break_it(to_jraph(generate("acm", scale=0.02))))
    assert "\n" not in str(error.value)


def test_missing_jraph_says_how_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jraph", None)
    with pytest.raises(InputError, match=r"to_jraph needs jraph, .*pip install jraph"):
        to_jraph(random_graph(0))
