"""Every implementation of neighbor_mean, neighbor_sum and neighbor_max against float64."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops import neighbor_max, neighbor_mean, neighbor_sum
from jhgnn.runtime.platform import compiling_for
from tests.ops import reference, tolerances
from tests.ops.cases import GRAPHS, HUBS, Way, is_tiled, marks_of, mean_size, on_each_graph, placed, relabelled, ways
from tests.ops.tolerances import assert_close

OPS = {
    "mean": (neighbor_mean.neighbor_mean, reference.mean, neighbor_mean.OP),
    "max": (neighbor_max.neighbor_max, reference.maximum, neighbor_max.OP),
}
PAIRS = [(op, way) for op, (_, _, own) in OPS.items() for way in ways(own)]
WIDTHS = [1, 3, 7, 8, 15, 16, 17, 31, 64, 100, 128, 129, 300]


def of_pairs(pairs: list[tuple[str, Way]]) -> Any:
    return pytest.mark.parametrize(("op", "way"), pairs, ids=[f"{op}-{w.takes.__name__}-{w.name}" for op, w in pairs])


ops = of_pairs(PAIRS)


def inputs(graph: SemanticGraph, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 20, (graph.num_sources, width)) / 8  # ties, for the maximum; exact in bfloat16
    return x.astype(np.float32), rng.normal(size=(graph.num_targets, width)).astype(np.float32)


@partial(jax.jit, static_argnums=(0,), static_argnames=("implementation",))
def run(op: Callable, graph: Any, *arrays: jax.Array, implementation: str) -> tuple[jax.Array, ...]:
    *primals, cotangent = arrays
    out, vjp = jax.vjp(lambda *primals: op(graph, *primals, implementation=implementation), *primals)
    return out, *vjp(cotangent)


def check(op: str, graph: SemanticGraph, x: jax.Array, cotangent: jax.Array, way: Way | str, tolerance: float) -> None:
    function, exact, _ = OPS[op]
    way = Way(way) if isinstance(way, str) else way
    with compiling_for(way.platform):
        actual = run(function, placed(graph, way.takes), x, cotangent, implementation=way.name)
    for what, ours, expected in zip(("out", "d_x"), actual, exact(graph, x, cotangent), strict=True):
        assert ours.dtype == x.dtype
        assert_close(ours, expected, tolerance, mean_size(expected), what)


@pytest.mark.parametrize(
    ("op", "way", "name"),
    [
        pytest.param(op, way, name, id=f"{op}-{way.takes.__name__}-{way.name}-{name}", marks=marks_of(way, name))
        for op, way in PAIRS
        for name in way.graphs
    ],
)
def test_agrees_with_float64(name: str, op: str, way: Way) -> None:
    tolerance = tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32
    check(op, GRAPHS[name], *inputs(GRAPHS[name], 6), way, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", sorted(OPS))
def test_native_covers_any_width(op: str, width: int, dtype: jnp.dtype) -> None:
    x, cotangent = (jnp.asarray(array, dtype) for array in inputs(GRAPHS["bipartite"], width))
    tolerance = tolerances.FLOAT32 if dtype == jnp.float32 else tolerances.BFLOAT16
    check(op, GRAPHS["bipartite"], x, cotangent, "native", tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("width", [48, 64, pytest.param(144, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op", sorted(OPS))
def test_native_in_tiles_of_columns(op: str, width: int, dtype: jnp.dtype) -> None:
    x, cotangent = (jnp.asarray(array, dtype) for array in inputs(GRAPHS["tiled"], width))
    tolerance = tolerances.FLOAT32_HUB if dtype == jnp.float32 else tolerances.BFLOAT16
    check(op, GRAPHS["tiled"], x, cotangent, "native", tolerance)


def test_native_takes_edges_of_a_row_in_any_order() -> None:
    graph = GRAPHS["tiled"]
    senders = graph.incoming.indices.copy()
    for begin, end in itertools.pairwise(graph.incoming.indptr):
        np.random.default_rng(begin).shuffle(senders[begin:end])
    shuffled = dataclasses.replace(graph, incoming=dataclasses.replace(graph.incoming, indices=senders))
    assert is_tiled(graph, 4 * 64)
    x, _ = inputs(graph, 64)  # eighths of small integers: their sums are exact in any order
    in_order = neighbor_mean.neighbor_mean(placed(graph), x, implementation="native")
    np.testing.assert_array_equal(neighbor_mean.neighbor_mean(placed(shuffled), x, implementation="native"), in_order)


@pytest.mark.parametrize("width", [3, 64])
def test_native_rounding_does_not_grow_with_a_row(width: int) -> None:
    """Equal terms are the worst: added one after the other, each is rounded to the sum's last bit the same way."""
    count = 16_000
    graph = SemanticGraph.from_pairs(np.arange(count), np.zeros(count, int), count, 2, "hub")
    x = np.full((count, width), 0.1, np.float32)
    found = neighbor_mean.neighbor_mean(placed(graph), x, implementation="native")
    np.testing.assert_allclose(np.asarray(found[0], np.float64), x[0].astype(np.float64), rtol=1e-5)
    one_by_one = np.cumsum(x[:, 0], dtype=np.float32)[-1] / count
    assert abs(one_by_one - np.float64(x[0, 0])) > 1e-4 * x[0, 0]


@ops
def test_bfloat16_in_float32_sums_at_a_hub(op: str, way: Way) -> None:
    x, cotangent = (jnp.asarray(array, jnp.bfloat16) for array in inputs(GRAPHS["hub_out"], 4))
    check(op, GRAPHS["hub_out"], x, cotangent, way, tolerances.BFLOAT16)


@of_pairs([pair for pair in PAIRS if pair[1].name != "native"])
def test_float64_where_xla_computes(op: str, way: Way) -> None:
    with jax.enable_x64(True):
        x, cotangent = (jnp.asarray(array, jnp.float64) for array in inputs(GRAPHS["bipartite"], 3))
        check(op, GRAPHS["bipartite"], x, cotangent, way, tolerances.FLOAT64)


@ops
def test_relabelling_permutes_the_outputs(op: str, way: Way) -> None:
    graph = GRAPHS["bipartite"]
    rng = np.random.default_rng(2)
    sources, targets = rng.permutation(graph.num_sources), rng.permutation(graph.num_targets)
    x, cotangent = inputs(graph, 5)
    moved = np.empty_like(x), np.empty_like(cotangent)
    moved[0][sources], moved[1][targets] = x, cotangent
    moved_graph = placed(relabelled(graph, sources, targets), way.takes)
    before = run(OPS[op][0], placed(graph, way.takes), x, cotangent, implementation=way.name)
    after = run(OPS[op][0], moved_graph, *moved, implementation=way.name)
    for a, b, order in zip(before, after, (targets, sources), strict=True):
        assert_close(np.asarray(b)[order], np.asarray(a, np.float64), tolerances.FLOAT32, mean_size(np.asarray(a)), op)


@on_each_graph(ways(neighbor_sum.OP))
def test_weighted_sum_agrees_with_float64(name: str, way: Way) -> None:
    graph = GRAPHS[name]
    x, cotangent = inputs(graph, 37)
    weights = np.random.default_rng(4).normal(size=graph.num_edges).astype(np.float32)
    op = neighbor_sum.neighbor_sum
    tolerance = tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32
    actual = run(op, placed(graph), x, weights, cotangent, implementation=way.name)
    expected = reference.weighted_sum(graph, x, weights, cotangent)
    for what, ours, exact in zip(("out", "d_x", "d_weights"), actual, expected, strict=True):
        assert_close(ours, exact, tolerance, mean_size(exact), what)
    actual = run(op, placed(graph), x, cotangent, implementation=way.name)
    expected = reference.weighted_sum(graph, x, np.ones(graph.num_edges), cotangent)
    for what, ours, exact in zip(("out", "d_x"), actual, expected[:2], strict=True):
        assert_close(ours, exact, tolerance, mean_size(exact), f"unweighted {what}")


@pytest.mark.slow
@hypothesis.given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 80)),
    width=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_graphs_native(sizes: tuple[int, int, int], width: int, seed: int) -> None:
    num_sources, num_targets, num_edges = sizes
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, num_sources, num_edges), rng.integers(0, num_targets, num_edges)
    graph = SemanticGraph.from_pairs(*ends, num_sources, num_targets, "any")
    for op in OPS:
        check(op, graph, *inputs(graph, width, seed), "native", tolerances.FLOAT32)


@pytest.mark.parametrize("op", [op for op, _, _ in OPS.values()] + [neighbor_sum.neighbor_sum])
def test_wrong_arguments(op: Callable) -> None:
    graph = placed(GRAPHS["bipartite"])
    with pytest.raises(ValueError, match="has no implementation 'fast'"):
        op(graph, np.zeros((37, 2), np.float32), implementation="fast")
    with pytest.raises(ValueError, match=r"got x \(36, 2\); need \[37, width\]"):
        op(graph, np.zeros((36, 2), np.float32), implementation="native")
