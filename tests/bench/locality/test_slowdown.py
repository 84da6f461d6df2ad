"""The predicted slowdown of a graph's gathers: chances of levels, costs by degree, and their quotient."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.locality.caches import Cache
from bench.locality.distances import stack_distances
from bench.locality.kernels import Kernel
from bench.locality.simulator import hits
from bench.locality.slowdown import DEGREES, LevelCosts, chances, prediction
from jhgnn.graph.semantic_graph import SemanticGraph

CACHES = [Cache("L1", 64 * 64, 64, 8), Cache("L2", 512 * 64, 64, 8)]


def costs(*ns: float) -> LevelCosts:
    """The same of every degree, by level."""
    each = np.repeat(np.array(ns)[:, None], len(DEGREES), axis=1)
    return LevelCosts(each, 2 * each)


@given(st.lists(st.integers(0, 10_000), min_size=1), st.sampled_from([1, 4, 32]))
def test_some_level_serves_each_access_and_a_longer_distance_a_farther_one(distances: list[int], lines: int) -> None:
    found = chances(np.sort(np.array(distances)), lines, CACHES)
    assert found.shape == (3, len(distances))
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=0), 1)
    assert (np.diff(found.cumsum(axis=0)[:2], axis=1) <= 1e-12).all()


@given(st.integers(0, 2**16))
def test_the_first_cache_holds_what_a_fully_associative_one_holds(seed: int) -> None:
    items = np.random.default_rng(seed).integers(0, 150, 400)
    found = chances(stack_distances(items, repeated=True), 1, CACHES)[0]
    assert found.tolist() == hits(items.tolist(), 64, rounds=2)


def test_the_other_caches_hold_as_much_as_one_whose_sets_are_drawn_at_random() -> None:
    rng = np.random.default_rng(3)
    items = (800 * rng.random(6_000) ** 2).astype(int)  # some much more often than others
    expected = chances(stack_distances(items, repeated=True), 1, CACHES)[:2].sum()
    counts = []
    for _ in range(20):
        # A row falls into one of 64 sets by where its page lies in memory.
        sets = rng.integers(0, 64, 800)
        lines = sets + 64 * np.arange(800)
        counts.append(sum(hits(lines[items].tolist(), 512, ways=8, rounds=2)))
    assert expected == pytest.approx(np.mean(counts), rel=0.02)


def test_cost_lies_between_those_of_measured_degrees() -> None:
    own = LevelCosts(np.array([[6.0, 5, 4, 3, 2, 1]]), np.array([[12.0, 10, 8, 6, 4, 2]]))
    assert own.of(0, np.array(DEGREES), False).tolist() == [6, 5, 4, 3, 2, 1]
    assert own.of(0, np.array([32]), False)[0] == pytest.approx(1.5)  # half way from 16 to 64 by logarithms
    assert own.of(0, np.array([1000]), True).tolist() == [2]


def graph(sources: int, degree: int, targets: int = 40) -> SemanticGraph:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, sources, targets * degree), np.repeat(np.arange(targets), degree)
    return SemanticGraph.from_pairs(*ends, sources, targets)


def test_a_graph_of_few_rows_is_as_fast_as_resident_gathers() -> None:
    found = prediction(Kernel("mean", False, 16), graph(8, 12, targets=20), CACHES, costs(1, 5, 25))
    assert found["predicted"] == 1
    assert found["served"] == {"L1": 1, "L2": 0, "memory": 0}


def test_a_slowdown_is_the_cost_of_where_rows_come_from() -> None:
    kernel = Kernel("mean", False, 16)
    found = prediction(kernel, graph(5_000, 20), CACHES, costs(1, 5, 25))
    served = found["served"]
    assert 0 < served["L1"] < 1
    assert found["predicted"] == pytest.approx(served["L1"] + 5 * served["L2"] + 25 * served["memory"], rel=1e-3)
    assert found["miss_rate"] == pytest.approx(1 - served["L1"], abs=1e-4)


@settings(max_examples=20)
@given(st.integers(1, 3_000), st.booleans(), st.sampled_from([16, 64]))
def test_equal_costs_predict_no_slowdown(sources: int, backward: bool, floats: int) -> None:
    found = prediction(Kernel("mean", backward, floats), graph(sources, 6), CACHES, costs(3, 3, 3))
    assert found["predicted"] == pytest.approx(1)


@pytest.mark.parametrize("backward", [False, True])
def test_a_graph_without_edges_has_no_slowdown(backward: bool) -> None:
    empty = SemanticGraph.from_pairs(np.zeros(0, int), np.zeros(0, int), 5, 4)
    assert prediction(Kernel("mean", backward, 16), empty, CACHES, costs(1, 5, 25))["predicted"] == 1
