"""SGB against dense products in float64, the paper's Table 3, and refusals."""

import dataclasses
import itertools
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.graph import metapath_product
from jhgnn.graph.chain_products import ChainProducts, rows_of_chain
from jhgnn.graph.factors import Factors
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.metapath_product import multiply, pattern
from jhgnn.graph.schema import Metapath, Relation, Schema
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import (
    build_metapath,
    build_relation,
    build_semantic_graphs,
    default_metapaths,
    estimate_num_edges,
)
from jhgnn.graph.size_estimate import estimate_chain

PLENTY_BYTES = 2**33


def dense(graph: HeteroGraph, relation: Relation) -> np.ndarray:
    """Multiplicities, float64 `[num_targets, num_sources]`."""
    edges = graph.edges[relation]
    matrix = np.zeros((graph.num_nodes[relation.target], graph.num_nodes[relation.source]))
    np.add.at(matrix, (edges.receivers, edges.senders), 1.0)
    return matrix


def dense_product(graph: HeteroGraph, metapath: Metapath) -> np.ndarray:
    """Instance counts, float64 `[num_receivers, num_senders]`."""
    product = dense(graph, metapath.relations[0])
    for relation in metapath.relations[1:]:
        product = dense(graph, relation) @ product
    return product


def dense_of(graph: SemanticGraph, direction: str = "incoming") -> np.ndarray:
    csr = getattr(graph, direction)
    shape = (graph.num_targets, graph.num_sources)
    matrix = np.zeros(shape if direction == "incoming" else shape[::-1])
    np.add.at(matrix, (np.repeat(np.arange(len(matrix)), np.diff(csr.indptr)), csr.indices), 1.0)
    return matrix


def assert_well_formed(graph: SemanticGraph) -> None:
    """Both directions hold the same edges, int32, rows ascending."""
    np.testing.assert_array_equal(dense_of(graph), dense_of(graph, "outgoing").T)
    for csr, rows, columns in (
        (graph.incoming, graph.num_targets, graph.num_sources),
        (graph.outgoing, graph.num_sources, graph.num_targets),
    ):
        assert csr.indptr.dtype == csr.indices.dtype == np.int32
        assert csr.indptr.shape == (rows + 1,)
        assert csr.indptr[0] == 0
        assert csr.indptr[-1] == len(csr.indices) == graph.num_edges
        for start, stop in itertools.pairwise(csr.indptr):
            assert (np.diff(csr.indices[start:stop]) >= 0).all()
        assert ((csr.indices >= 0) & (csr.indices < columns)).all()


@st.composite
def chains(draw: st.DrawFn) -> tuple[HeteroGraph, Metapath]:
    """A walk over up to 3 node types, with empty relations, isolated nodes, parallel edges, and reverses."""
    types = ["a", "b", "c"][: draw(st.integers(1, 3))]
    num_nodes = {node_type: draw(st.integers(1, 9)) for node_type in types}
    edges = {}
    for source, target in itertools.product(types, types):
        pair = st.tuples(st.integers(0, num_nodes[source] - 1), st.integers(0, num_nodes[target] - 1))
        pairs = np.array(draw(st.lists(pair, max_size=14)), np.int64).reshape(-1, 2)
        back = (target, "to", source)
        if back in edges and draw(st.booleans()):
            edges[source, "to", target] = edges[back][::-1]
        else:
            edges[source, "to", target] = (pairs[:, 0], pairs[:, 1])
    graph = HeteroGraph.from_arrays(num_nodes=num_nodes, edges=edges)
    walk = draw(st.lists(st.sampled_from(types), min_size=2, max_size=6))
    if draw(st.booleans()):
        walk += walk[-2::-1]  # there and back: mirrored chains take their own way through the code
    relations = tuple(Relation(source, "to", target) for source, target in itertools.pairwise(walk))
    return graph, Metapath("walk", relations)


@hypothesis.given(chains())
def test_metapath_equals_the_dense_product(case: tuple[HeteroGraph, Metapath]) -> None:
    graph, metapath = case
    built = build_metapath(graph, metapath, memory_limit_bytes=PLENTY_BYTES)
    assert_well_formed(built)
    np.testing.assert_array_equal(dense_of(built), dense_product(graph, metapath) > 0)
    assert built.name == "walk"


@hypothesis.given(chains())
def test_instance_counts_equal_the_dense_product(case: tuple[HeteroGraph, Metapath]) -> None:
    graph, metapath = case
    built, counts = build_metapath(graph, metapath, memory_limit_bytes=PLENTY_BYTES, counts=True)
    assert_well_formed(built)
    expected = dense_product(graph, metapath)
    np.testing.assert_array_equal(dense_of(built), expected > 0)
    assert counts.dtype == np.int64
    receivers = np.repeat(np.arange(built.num_targets), np.diff(built.incoming.indptr))
    np.testing.assert_array_equal(counts, expected[receivers, built.incoming.indices])


@hypothesis.given(chains())
def test_estimates_of_small_graphs_are_exact(case: tuple[HeteroGraph, Metapath]) -> None:
    graph, metapath = case
    estimate = estimate_num_edges(graph, metapath, memory_limit_bytes=PLENTY_BYTES)
    assert estimate.exact
    assert estimate.num_edges == (dense_product(graph, metapath) > 0).sum()


@hypothesis.given(chains())
def test_bounds_bound_and_row_blocks_agree(case: tuple[HeteroGraph, Metapath]) -> None:
    graph, metapath = case
    products = ChainProducts(Factors(graph), limit_bytes=PLENTY_BYTES)
    plan = products.plan(products.factors.chain(metapath.relations))
    expected = dense_product(graph, metapath) > 0
    assert (plan.row_bounds(0, plan.length - 1) >= expected.sum(axis=1)).all()
    rows = np.arange(0, len(expected), 2)
    np.testing.assert_array_equal(rows_of_chain(plan, rows).toarray() > 0, expected[rows])


@hypothesis.given(chains(), st.randoms(use_true_random=False))
def test_relabelling_nodes_permutes_the_result(case: tuple[HeteroGraph, Metapath], random: object) -> None:
    graph, metapath = case
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    new_id = {node_type: rng.permutation(count) for node_type, count in graph.num_nodes.items()}
    relabelled = HeteroGraph.from_arrays(
        num_nodes=graph.num_nodes,
        edges={
            relation: (new_id[relation.source][edges.senders], new_id[relation.target][edges.receivers])
            for relation, edges in graph.edges.items()
        },
    )
    built = dense_of(build_metapath(graph, metapath, memory_limit_bytes=PLENTY_BYTES))
    again = dense_of(build_metapath(relabelled, metapath, memory_limit_bytes=PLENTY_BYTES))
    np.testing.assert_array_equal(again[np.ix_(new_id[metapath.target], new_id[metapath.source])], built)


@hypothesis.given(chains())
def test_the_reversed_metapath_is_the_transpose(case: tuple[HeteroGraph, Metapath]) -> None:
    graph, metapath = case
    backwards = HeteroGraph.from_arrays(
        num_nodes=graph.num_nodes,
        edges={relation.reversed(): (edges.receivers, edges.senders) for relation, edges in graph.edges.items()},
    )
    back = Metapath("back", tuple(relation.reversed() for relation in reversed(metapath.relations)))
    one = build_metapath(graph, metapath, memory_limit_bytes=PLENTY_BYTES)
    other = build_metapath(backwards, back, memory_limit_bytes=PLENTY_BYTES)
    np.testing.assert_array_equal(one.incoming.indices, other.outgoing.indices)
    np.testing.assert_array_equal(one.outgoing.indptr, other.incoming.indptr)


@hypothesis.given(
    st.integers(1, 200), st.integers(1, 150), st.integers(1, 200), st.floats(0.0, 0.6), st.integers(0, 2**32 - 1)
)
def test_bit_sets_equal_the_sparse_product(rows: int, inner: int, columns: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.random((rows, inner)) < density, rng.random((inner, columns)) < density
    left[0] = True  # a long row
    matrices = []
    for matrix in (left, right):
        indptr = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))])
        matrices.append(pattern(indptr, np.nonzero(matrix)[1].astype(np.int32), matrix.shape[1]))
    product = metapath_product._multiply_bitset(*matrices, np.inf)
    expected = (left.astype(np.float64) @ right.astype(np.float64)) > 0
    np.testing.assert_array_equal(product.toarray(), expected)
    assert product.has_sorted_indices
    flops = metapath_product.row_flops(*matrices)
    blocks = list(metapath_product._sparse_row_blocks(*matrices, flops, 0))
    np.testing.assert_array_equal(np.concatenate([block.toarray() for block in blocks]), expected)


def test_relation_keeps_parallel_edges() -> None:
    graph = HeteroGraph.from_arrays(
        num_nodes={"user": 3, "item": 2}, edges={("user", "buys", "item"): (np.array([0, 0, 2]), np.array([1, 1, 0]))}
    )
    relation = graph.schema.relations[0]
    built = build_relation(graph, relation)
    assert built.name == "user:buys:item"
    np.testing.assert_array_equal(dense_of(built), [[0, 0, 1], [2, 0, 0]])
    single = build_metapath(graph, Metapath("UI", (relation,)))
    np.testing.assert_array_equal(dense_of(single), [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(graph.edges[relation].senders, [2, 0, 0])  # merging works on a copy


TABLE_3 = {
    "acm": {"PAP": 29_436, "PSP": 2_200_581, "PAPSP": 3_666_289},
    "imdb": {"MDM": 17_446, "MAM": 85_358, "MAMDM": 338_517},
    "dblp": {"APA": 11_113, "APVPA": 5_000_495, "APTPA": 7_043_571},
}
"""Edges that the paper (its Table 3) counts."""


@pytest.fixture(scope="module")
def table_3_graphs(data_root: Path) -> dict[str, HeteroGraph]:
    return {
        "acm": load("arrays", data_root / "acm_gtn"),
        "imdb": load("magnn", data_root / "magnn_imdb"),
        "dblp": load("magnn", data_root / "magnn_dblp"),
    }


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3(name: str, table_3_graphs: dict[str, HeteroGraph]) -> None:
    graph = table_3_graphs[name]
    metapaths = [graph.schema.metapath(text) for text in TABLE_3[name]]
    built = build_semantic_graphs(graph, metapaths)
    assert {text: one.num_edges for text, one in built.items()} == TABLE_3[name]
    for metapath in metapaths:
        estimate = estimate_num_edges(graph, metapath)
        assert (estimate.num_edges, estimate.exact) == (TABLE_3[name][metapath.name], True)


def test_sampled_estimates_are_close(table_3_graphs: dict[str, HeteroGraph]) -> None:
    graph = table_3_graphs["dblp"]
    for text, expected in (("APTPA", 7_043_571), ("APA", 11_113)):
        products = ChainProducts(Factors(graph), limit_bytes=PLENTY_BYTES)
        chain = products.factors.chain(graph.schema.metapath(text).relations)
        estimate = estimate_chain(products, chain, products.plan(chain), exact_budget_s=-1.0)
        assert not estimate.exact
        assert abs(estimate.num_edges - expected) < 5 * estimate.standard_error + 1
        assert estimate.standard_error < 0.05 * expected
        assert estimate.upper_bound >= expected


def test_sub_products_that_would_not_fit_go_by_row_blocks(table_3_graphs: dict[str, HeteroGraph]) -> None:
    graph = table_3_graphs["imdb"]
    metapath = graph.schema.metapath("MAMDM")
    products = ChainProducts(Factors(graph), limit_bytes=400_000)
    chain = products.factors.chain(metapath.relations)
    plan = products.plan(chain)
    assert not products.fits(plan, plan.order())
    blocked = products.product(chain, plan, np.inf)
    whole = build_metapath(graph, metapath)
    assert blocked.nnz == 338_517
    np.testing.assert_array_equal(blocked.indptr, whole.incoming.indptr)


@pytest.mark.parametrize("counts", [False, True])
def test_too_large_is_refused_with_the_estimate_and_the_way_out(
    counts: bool, table_3_graphs: dict[str, HeteroGraph]
) -> None:
    graph = table_3_graphs["acm"]
    with pytest.raises(
        InputError, match=r"'PSP' would have 2,200,581 edges and take .* memory limit of 1.0 MiB: raise"
    ):
        build_metapath(graph, graph.schema.metapath("PSP"), memory_limit_bytes=2**20, counts=counts)
    with pytest.raises(InputError, match=r"memory limit of 1\.0 MiB"):
        build_semantic_graphs(graph, [graph.schema.metapath("PSP")], memory_limit_bytes=2**20)
    with pytest.raises(InputError, match=r"memory limit of 1\.0 KiB: raise sgb\.memory_limit_gib"):
        build_semantic_graphs(graph, None, memory_limit_bytes=2**10)


def test_the_limit_is_for_all_graphs_together(table_3_graphs: dict[str, HeteroGraph]) -> None:
    graph = table_3_graphs["acm"]
    limit = 46 * 2**20  # PAPSP takes 42.0 MiB at its worst, PSP 25.2 of which it keeps 8.4
    metapaths = {text: graph.schema.metapath(text) for text in ("PAPSP", "PSP")}
    for metapath in metapaths.values():
        build_semantic_graphs(graph, [metapath], memory_limit_bytes=limit)
    with pytest.raises(InputError, match="'PAPSP'"):
        build_semantic_graphs(graph, list(metapaths.values()), memory_limit_bytes=limit)


def test_a_symmetric_graph_holds_its_edges_once() -> None:
    graph = path_graph()
    built = build_metapath(graph, graph.schema.metapath("PAP"))
    assert built.outgoing is built.incoming
    assert built.nbytes == built.incoming.indptr.nbytes + built.incoming.indices.nbytes
    placed = built.place(("coo",))
    assert placed.outgoing is placed.incoming
    assert placed.nbytes == built.with_views(("coo",)).nbytes
    one_way = build_metapath(graph, graph.schema.metapath("PA")).place(())
    np.testing.assert_array_equal(one_way.outgoing.indices, [0, 0, 1, 1])


def test_more_edges_than_int32_counts_are_refused_whatever_the_limit() -> None:
    count = 50_000
    everyone, nobody = np.arange(count), np.zeros(count, np.int64)
    graph = HeteroGraph.from_arrays(
        num_nodes={"paper": count, "venue": 1}, edges={("paper", "in", "venue"): (everyone, nobody)}
    ).with_reverse_relations()
    metapath = graph.schema.metapath("PVP")
    assert estimate_num_edges(graph, metapath).num_edges == count**2
    with pytest.raises(InputError, match=r"2,500,000,000 edges \(27\.9 GiB .* but kernels index with int32"):
        build_metapath(graph, metapath, memory_limit_bytes=2**50)


def test_a_low_estimate_is_caught_while_building() -> None:
    identity = pattern(np.arange(1001), np.arange(1000, dtype=np.int32), 1000)
    assert multiply(identity, identity, max_edges=1000, max_bytes=PLENTY_BYTES).nnz == 1000
    with pytest.raises(metapath_product.ProductTooLargeError):
        multiply(identity, identity, max_edges=999, max_bytes=PLENTY_BYTES)
    full = pattern(np.arange(0, 10_001, 100), np.tile(np.arange(100, dtype=np.int32), 100), 100)
    with pytest.raises(metapath_product.ProductTooLargeError):
        multiply(full, full, max_edges=9_999, max_bytes=PLENTY_BYTES)


def test_a_metapath_given_twice_is_merged_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    graph = path_graph()
    metapath = graph.schema.metapath("PAP")
    built = build_semantic_graphs(graph, [metapath, dataclasses.replace(metapath, name="again")])
    assert list(built) == ["PAP"]
    assert "'again' is given twice" in caplog.text
    with pytest.raises(InputError, match="two different metapaths are named 'PAP'"):
        build_semantic_graphs(graph, [metapath, dataclasses.replace(graph.schema.metapath("PA"), name="PAP")])


def test_all_relations_and_order_of_metapaths() -> None:
    graph = path_graph()
    assert list(build_semantic_graphs(graph, None)) == ["paper:has:author", "author:rev_has:paper"]
    built = build_semantic_graphs(graph, [graph.schema.metapath(text) for text in ("PAPAP", "PA", "PAP")])
    assert list(built) == ["PAPAP", "PA", "PAP"]
    np.testing.assert_array_equal(dense_of(built["PAP"]), [[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    np.testing.assert_array_equal(dense_of(built["PAPAP"]), np.ones((3, 3)))


def test_unknown_relations_are_refused() -> None:
    graph = path_graph()
    strange = Relation("paper", "cites", "paper")
    for attempt in (build_relation, lambda graph, relation: build_metapath(graph, Metapath("PP", (relation,)))):
        with pytest.raises(InputError, match=r"no relation 'paper:cites:paper'; known: paper:has:author"):
            attempt(graph, strange)


def test_an_instance_count_beyond_int64_is_refused() -> None:
    count = 300
    senders, receivers = (ends.ravel() for ends in np.meshgrid(np.arange(count), np.arange(count)))
    graph = HeteroGraph.from_arrays(num_nodes={"a": count}, edges={("a", "to", "a"): (senders, receivers)})
    metapath = Metapath("long", graph.schema.relations * 9)
    assert build_metapath(graph, metapath).num_edges == count**2
    with pytest.raises(InputError, match="beyond int64"):
        build_metapath(graph, metapath, counts=True)


def names(schema: Schema, target: str) -> list[str]:
    return [metapath.name for metapath in default_metapaths(schema, target)]


def both_ways(*pairs: tuple[str, str]) -> tuple[Relation, ...]:
    forward = [Relation(source, f"{source}_{target}", target) for source, target in pairs]
    return tuple(itertools.chain.from_iterable((one, one.reversed()) for one in forward))


def test_default_metapaths() -> None:
    acm = Schema(("paper", "author", "subject"), both_ways(("paper", "author"), ("paper", "subject")))
    assert names(acm, "paper") == ["PAP", "PSP"]
    imdb = Schema(("movie", "director", "actor"), both_ways(("movie", "director"), ("movie", "actor")))
    assert names(imdb, "movie") == ["MDM", "MAM"]
    dblp_types = ("author", "paper", "term", "venue")
    dblp = Schema(dblp_types, both_ways(("author", "paper"), ("paper", "term"), ("paper", "venue")))
    assert names(dblp, "author") == ["APA", "APTPA", "APVPA"]
    cites = Relation("paper", "cites", "paper")
    assert names(Schema(("paper",), (cites, cites.reversed())), "paper") == [
        "paper-cites-paper",
        "paper-rev_cites-paper",
    ]
    two = (Relation("paper", "first", "author"), Relation("paper", "other", "author"))
    several = Schema(("paper", "author"), (*two, *(one.reversed() for one in two)))
    assert [path.relations for path in default_metapaths(several, "paper")] == [
        (relation, relation.reversed()) for relation in two
    ]
    one_way = Schema(("paper", "author"), two[:1])
    with pytest.raises(InputError, match=r"no metapath leads from 'paper' back to itself: give model\.metapaths"):
        default_metapaths(one_way, "paper")
    with pytest.raises(InputError, match="target 'venue' is not a node type"):
        default_metapaths(acm, "venue")


def test_long_default_metapaths_are_left_out_of_large_schemas() -> None:
    beyond = [f"type{number}" for number in range(20)]
    pairs = [("paper", "author"), *(("author", node_type) for node_type in beyond)]
    schema = Schema(("paper", "author", *beyond), both_ways(*pairs))
    assert names(schema, "paper") == ["paper-author-paper"]


def path_graph() -> HeteroGraph:
    """Papers 0 and 1 share an author, and so do 1 and 2."""
    graph = HeteroGraph.from_arrays(
        num_nodes={"paper": 3, "author": 2},
        edges={("paper", "has", "author"): (np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]))},
    )
    return graph.with_reverse_relations()
