"""Empty node types and relations change no semantic graph, receptive field or link split, and are themselves built."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.graph.erased import erase_types
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_split import link_split, message_graph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.receptive_field import ReceptiveField, receptive_field
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_metapath, build_semantic_graphs, estimate_num_edges
from jhgnn.graph.stacked import stack_relations
from tests.graph.empties import NOTHING, VOID, with_empties


def drawn(seed: int, papers: int = 12, authors: int = 8) -> HeteroGraph:
    rng = np.random.default_rng(seed)
    by = rng.integers(0, papers, 20), rng.integers(0, authors, 20)
    cites = rng.integers(0, papers, 15), rng.integers(0, papers, 15)
    return HeteroGraph.from_arrays(
        num_nodes={"paper": papers, "author": authors},
        edges={("paper", "by", "author"): by, ("author", "of", "paper"): by[::-1], ("paper", "cites", "paper"): cites},
        target="paper",
        labels=rng.integers(0, 2, papers),
        num_classes=2,
        splits={"train": np.arange(4), "test": np.arange(6, 9)},
    )


def assert_same(first: SemanticGraph, second: SemanticGraph) -> None:
    assert (first.num_sources, first.num_targets, first.name) == (second.num_sources, second.num_targets, second.name)
    for ours, theirs in ((first.incoming, second.incoming), (first.outgoing, second.outgoing)):
        np.testing.assert_array_equal(ours.indptr, theirs.indptr, strict=True)
        np.testing.assert_array_equal(ours.indices, theirs.indices, strict=True)


@given(seed=st.integers(0, 1000))
def test_semantic_graphs_are_those_without_empties(seed):
    graph = drawn(seed)
    more = with_empties(graph)
    plain, own = build_semantic_graphs(graph, None), build_semantic_graphs(more, None)
    assert len(own) == len(more.edges)
    for name, built in own.items():
        if name in plain:
            assert_same(built, plain[name])
        else:
            assert built.num_edges == 0
    paths = [["by", "of"], ["cites"], ["of", "by", "of", "by"]]
    metapaths = [graph.schema.metapath(path) for path in paths]
    built = build_semantic_graphs(more, metapaths)
    for name, one in build_semantic_graphs(graph, metapaths).items():
        assert_same(built[name], one)


def through(*relations: Relation) -> Metapath:
    return Metapath("x", relations)


CITES, AGAIN = Relation("paper", "cites", "paper"), Relation("paper", "never_again", "paper")
OUT, BACK = Relation("paper", f"never_{NOTHING}", NOTHING), Relation(NOTHING, "never", "paper")
EMPTY_PATHS = [
    through(OUT),
    through(OUT, BACK),
    through(Relation("paper", "by", "author"), Relation("author", "of", "paper"), OUT, BACK),
    through(Relation("paper", "never_again", "paper"), Relation("paper", "cites", "paper")),
    through(Relation(VOID, f"never_{VOID}", VOID), Relation(VOID, f"never_{VOID}", VOID)),
    through(Relation(VOID, "never_paper", "paper"), Relation("paper", "by", "author")),
]


@pytest.mark.parametrize("metapath", EMPTY_PATHS, ids=lambda path: ",".join(map(str, path.relations)))
def test_metapaths_through_empties_have_no_edges(metapath, tmp_path):
    graph = with_empties(drawn(0))
    estimate = estimate_num_edges(graph, metapath)
    assert (estimate.num_edges, estimate.exact, estimate.density) == (0, True, 0)
    built, counts = build_metapath(graph, metapath, counts=True)
    assert len(counts) == built.num_edges == 0
    assert (built.num_sources, built.num_targets) == (
        graph.num_nodes[metapath.source],
        graph.num_nodes[metapath.target],
    )
    for _ in range(2):  # built, then from the cache
        (again,) = build_semantic_graphs(graph, [metapath], cache_dir=tmp_path).values()
        assert_same(again, built)
    views = built.with_views(("coo", "adjacency"))
    assert views.adjacency.shape == (built.num_targets, built.num_sources)


@given(seed=st.integers(0, 1000))
def test_empties_are_taken_out(seed):
    graph = drawn(seed)
    links = LinkTriples((AGAIN, CITES), {"train": np.int32([[*pair(graph), 1]])[:, [0, 2, 1]]})
    more = dataclasses.replace(with_empties(graph), links=links, keys={VOID: np.zeros(0, np.int64)})
    bare = more.without_empty()
    assert (bare.schema, bare.num_nodes, bare.keys) == (graph.schema, graph.num_nodes, {})
    assert all(bare.edges[relation] is edges for relation, edges in graph.edges.items())
    assert bare.links.relations == (CITES,)
    bare.links.check(bare.num_nodes, bare.edges)
    assert graph.without_empty() is graph
    alone = HeteroGraph.from_arrays(num_nodes={"paper": 0, VOID: 0}, edges={}, target="paper").without_empty()
    assert alone.num_nodes == {"paper": 0}


def pair(graph: HeteroGraph) -> tuple[int, int]:
    """The ends of a citation."""
    edges = graph.edges[CITES]
    return int(edges.senders[0]), int(edges.receivers[0])


class Layer(NamedTuple):
    """A layer that reads every type, over all relations."""

    relations: dict[str, Relation]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def field_of(graph: HeteroGraph) -> tuple[ReceptiveField, dict[str, SemanticGraph]]:
    relations = {str(relation): relation for relation in graph.edges}
    layer = Layer(relations, graph.schema.node_types, graph.schema.node_types)
    graphs = build_semantic_graphs(graph, None)
    return receptive_field((layer, layer), graphs, graph.num_nodes, "paper", graph.splits["train"]), graphs


@given(seed=st.integers(0, 1000))
def test_receptive_fields_are_those_without_empties(seed):
    graph = drawn(seed)
    (plain, plain_graphs), (own, own_graphs) = field_of(graph), field_of(with_empties(graph))
    assert own.counts == plain.counts
    assert own.share == plain.share
    assert list(own.ids) == list(plain.ids)
    for node_type, ids in plain.ids.items():
        np.testing.assert_array_equal(own.ids[node_type], ids)
    for hop in range(2):
        ours, theirs = own.graphs(hop, own_graphs), plain.graphs(hop, plain_graphs)
        assert set(ours) == set(theirs)
        for name in theirs:
            assert_same(ours[name], theirs[name])


@given(seed=st.integers(0, 1000))
def test_stacks_are_those_without_empties(seed):
    """One relation more, which has no edges, or nothing but such relations."""
    graph = drawn(seed)
    more = with_empties(graph)
    own = {relation: more.edges[relation] for relation in (CITES, AGAIN)}
    plain, places = stack_relations({CITES: graph.edges[CITES]}, 12, "segment")
    stack, own_places = stack_relations(own, 12, "segment")
    assert_same(stack.graph, plain.graph)
    for name in ("relation_of_edge", "group_of_edge", "weights"):
        np.testing.assert_array_equal(getattr(stack, name), getattr(plain, name))
    np.testing.assert_array_equal(own_places, places)
    nothing, _ = stack_relations({AGAIN: more.edges[AGAIN]}, 12, "segment")
    assert (nothing.num_groups, nothing.graph.num_edges) == (0, 0)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_link_splits_are_those_without_empties(seed):
    graph = drawn(seed)
    more = with_empties(graph)
    options = {"val_share": 0.2, "test_share": 0.2, "seed": 3}
    plain, own = link_split(graph, ["by"], **options), link_split(more, ["by"], **options)
    for name, rows in plain.triples.items():
        np.testing.assert_array_equal(own.triples[name], rows)
    left, mine = message_graph(graph, plain), message_graph(more, own)
    for relation, edges in left.edges.items():
        assert mine.edges[relation].joins_as(edges)
    assert_same(erase_types(more), erase_types(graph))
    reversed_plain, reversed_own = graph.with_reverse_relations(), more.with_reverse_relations()
    for relation, edges in reversed_plain.edges.items():
        assert reversed_own.edges[relation].joins_as(edges)
