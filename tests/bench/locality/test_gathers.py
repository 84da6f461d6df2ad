"""Orders of gathers, of vertices and of semantic graphs, and the controls of times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from bench.locality.caches import Cache, cpu_caches, row_bytes
from bench.locality.gathers import TILE_ROWS, gathers, walk
from bench.locality.orders import ORDERS, by_breadth, by_middle, by_shared_rows, renumbered, shuffled
from bench.locality.resident import resident
from bench.locality.sampling import exact
from jhgnn.data.synthetic import generate
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_metapath

SEEDS = st.integers(0, 2**16)


def random_graph(seed: int, *, square: bool = False) -> SemanticGraph:
    rng = np.random.default_rng(seed)
    sources, targets = int(rng.integers(1, 40)), int(rng.integers(1, 40))
    targets = sources if square else targets
    edges = int(rng.integers(0, 120))
    ends = rng.integers(0, sources, edges), rng.integers(0, targets, edges)
    if square:
        ends = np.concatenate(ends), np.concatenate(ends[::-1])
    return SemanticGraph.from_pairs(*ends, sources, targets)


@given(SEEDS, st.integers(1, 12))
def test_tiles_are_walked_by_rows_together(seed: int, tile: int) -> None:
    csr = random_graph(seed).incoming
    expected = []
    for first in range(0, len(csr.indptr) - 1, TILE_ROWS):
        rows = range(first, min(first + TILE_ROWS, len(csr.indptr) - 1))
        for begin in range(0, 40, tile):
            for row in rows:
                own = range(csr.indptr[row], csr.indptr[row + 1])
                expected += [edge for edge in own if begin <= csr.indices[edge] < begin + tile]
    assert walk(csr, tile).tolist() == expected
    assert walk(csr, 0).tolist() == list(range(len(csr.indices)))


@given(SEEDS, st.booleans(), st.sampled_from([*ORDERS, "shuffled"]))
def test_orders_are_permutations_that_keep_the_graph(seed: int, square: bool, name: str) -> None:
    graph = random_graph(seed, square=square)
    order = shuffled(graph) if name == "shuffled" else ORDERS[name](graph)
    for numbers, count in zip(order, (graph.num_sources, graph.num_targets), strict=True):
        assert sorted(numbers.tolist()) == list(range(count))
    if square:
        assert np.array_equal(*order)
    other = renumbered(graph, order)
    degrees = np.diff(other.incoming.indptr)[order[1]]
    assert degrees.tolist() == np.diff(graph.incoming.indptr).tolist()
    assert other.num_edges == graph.num_edges


@given(SEEDS, st.booleans())
def test_breadth_first_searches_one_component_after_the_other(seed: int, square: bool) -> None:
    graph = random_graph(seed, square=square)
    senders, receivers = by_breadth(graph)
    rows = np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))
    ends = graph.incoming.indices, rows if square else graph.num_sources + rows
    count = graph.num_sources if square else graph.num_sources + graph.num_targets
    matrix = sparse.csr_array((np.ones(len(rows)), ends), shape=(count, count))
    neighbours = [set((matrix + matrix.T)[[vertex]].indices.tolist()) for vertex in range(count)]
    # Where both ends are the same vertices, equal edges count as often as they are there.
    degrees = np.diff(graph.incoming.indptr) if square else [len(each) for each in neighbours]
    left, expected = set(range(count)), []
    while left:
        queue = [max(left, key=lambda vertex: (degrees[vertex], -vertex))]
        for vertex in queue:
            queue += sorted(neighbours[vertex] - set(queue))
        expected += queue
        left -= set(queue)
    assert np.argsort(senders).tolist() == [each for each in expected if each < graph.num_sources]
    if not square:
        assert np.argsort(receivers).tolist() == [e - graph.num_sources for e in expected if e >= graph.num_sources]


def test_ends_of_one_middle_vertex_stand_together_and_are_read_again_sooner() -> None:
    graph = generate("acm", scale=0.3)
    metapath = graph.schema.metapath("PSP")
    built = build_metapath(graph, metapath)
    ordered = renumbered(built, by_middle(graph, metapath, built))
    mixed = renumbered(built, shuffled(built))
    largest = np.diff(built.incoming.indptr).max()
    rates = [exact(gathers(each.incoming), repeated=True).hit_rate(largest) for each in (ordered, mixed)]
    assert rates[0] > 0.9 > rates[1] + 0.2
    # Papers of one subject all share their neighbours: an edge leads nearby.
    span = np.abs(
        np.repeat(np.arange(ordered.num_targets), np.diff(ordered.incoming.indptr)) - ordered.incoming.indices
    )
    assert span.max() < largest


def test_semantic_graphs_follow_those_they_share_rows_with() -> None:
    read = [np.arange(10), np.arange(100, 110), np.arange(5, 12), np.arange(108, 120)]
    assert by_shared_rows(read) == [0, 2, 1, 3]
    assert by_shared_rows(read, most=False) == [0, 1, 2, 3]
    assert by_shared_rows([]) == []


@given(SEEDS, st.integers(1, 6), st.integers(0, 8))
def test_resident_gathers_read_few_rows_of_each_tile(seed: int, rows: int, tile: int) -> None:
    csr = random_graph(seed).incoming
    near = resident(csr, rows, tile)
    assert np.array_equal(near.indptr, csr.indptr)
    if not tile:
        assert len(np.unique(near.indices)) <= rows
    else:
        assert (near.indices % tile < rows).all()
        for begin, end in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
            assert (np.diff(near.indices[begin:end]) >= 0).all()
            own, mapped = csr.indices[begin:end] // tile, near.indices[begin:end] // tile
            assert np.array_equal(np.sort(own), mapped)


def test_caches_are_read_as_the_system_describes_them(tmp_path) -> None:
    for index, (kind, level, size, ways) in enumerate([("Data", 1, "48K", 12), ("Instruction", 1, "32K", 8)]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        told = {"type": kind, "level": level, "size": size, "ways_of_associativity": ways, "coherency_line_size": 64}
        for name, value in told.items():
            (folder / name).write_text(f"{value}\n")
    assert cpu_caches(tmp_path) == [Cache("L1", 48 * 1024, 64, 12)]
    assert cpu_caches(tmp_path / "none") == []


@pytest.mark.parametrize(("width", "line", "whole"), [(256, 64, 256), (100, 64, 128), (1, 128, 128)])
def test_rows_take_whole_lines(width: int, line: int, whole: int) -> None:
    assert row_bytes(width, line) == whole
