"""row_attention against float64: values, gradients, dropout mask, and what it takes."""

from functools import partial
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.row_attention import row_attention, weighs_less
from tests.ops import reference, tolerances
from tests.ops.cases import AS_TABLES, GRAPHS, HUBS, as_table, mean_size
from tests.ops.tolerances import assert_close

RESULTS = ("out", "d_x", "d_weight", "d_columns", "d_logit_dst")
WIDTHS = [(8, 8, 128), (1, 64, 33), (4, 16, 64), (2, 32, 17), (3, 5, 7), (5, 3, 16), (7, 1, 1), (16, 4, 40), (1, 1, 3)]
"""Heads, width of a head, and of a row."""


def inputs(graph: SemanticGraph, heads: int, width: int, in_width: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """(x, weight, columns, logit_dst, cotangent), float32, with logits of about 1."""
    rng = np.random.default_rng(seed)
    targets, sources = graph.num_targets, graph.num_sources
    shapes = [(sources, in_width), (in_width, heads * width), (in_width, heads), (targets, heads)]
    x, weight, columns, dst = (rng.normal(size=shape) for shape in shapes)
    cotangent = rng.normal(size=(targets, heads * width))
    scaled = (x, weight / in_width**0.5, columns / in_width**0.5, dst, cotangent)
    return tuple(each.astype(np.float32) for each in scaled)


@partial(jax.jit, static_argnames=("implementation", "rate", "of_rows"))
def run(
    table: Any, arrays: tuple, seed: Any, *, implementation: str = "native", rate: float = 0.0, of_rows: bool = True
) -> tuple[jax.Array, ...]:
    x, *primals, cotangent = arrays

    def attend(*given: jax.Array) -> jax.Array:
        rows = given if of_rows else (x, *given)
        return row_attention(table, *rows, dropout_rate=rate, dropout_seed=seed, implementation=implementation)

    out, vjp = jax.vjp(attend, *((x,) if of_rows else ()), *primals)
    return out, *vjp(cotangent)


def expected(graph: SemanticGraph, arrays: tuple, rate: float = 0.0, seed: int = 0) -> tuple[np.ndarray, ...]:
    """In float64, by the reference of attention and the chain rule."""
    x, weight, columns, dst, cotangent = (each.astype(np.float64) for each in arrays)
    shape = (-1, columns.shape[1], weight.shape[1] // columns.shape[1])
    out, d_z, d_src, d_dst = reference.attention(
        graph, (x @ weight).reshape(graph.num_sources, *shape[1:]), x @ columns, dst,
        cotangent.reshape(graph.num_targets, *shape[1:]), rate=rate, seed=seed,
    )  # fmt: skip
    d_z = d_z.reshape(graph.num_sources, weight.shape[1])
    return out.reshape(cotangent.shape), d_z @ weight.T + d_src @ columns.T, x.T @ d_z, x.T @ d_src, d_dst


def check(graph: SemanticGraph, arrays: tuple, tolerance: float, rate: float = 0.0, **options: Any) -> None:
    table = jax.device_put(as_table(graph))
    actual = run(table, arrays, np.uint32(3), rate=rate, **options)
    exact = expected(graph, arrays, rate, 3)
    size = mean_size(*arrays[:2]) ** 2 * mean_size(arrays[-1]) / (1.0 - rate)
    for name, ours, own in zip(RESULTS, actual, exact, strict=True):
        assert_close(ours, own, tolerance, max(size, mean_size(own)), name)


@pytest.mark.parametrize("implementation", ["native", "fanout"])
@pytest.mark.parametrize("rate", [0.0, 0.6])
@pytest.mark.parametrize("name", AS_TABLES)
def test_agrees_with_float64(name: str, rate: float, implementation: str) -> None:
    tolerance = tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32
    check(GRAPHS[name], inputs(GRAPHS[name], 4, 8, 24), tolerance, rate, implementation=implementation)


def test_the_plain_form_agrees_in_float64() -> None:
    graph = GRAPHS["dense"]
    arrays = tuple(each.astype(np.float64) for each in inputs(graph, 3, 5, 7))
    with jax.enable_x64():
        check(graph, arrays, tolerances.FLOAT64, 0.4, implementation="fanout")


@pytest.mark.parametrize(("heads", "width", "in_width"), WIDTHS)
def test_any_widths(heads: int, width: int, in_width: int) -> None:
    graph = GRAPHS["dense"]
    check(graph, inputs(graph, heads, width, in_width), tolerances.FLOAT32, 0.3)


@hypothesis.given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(0, 900)),
    widths=st.sampled_from([(1, 4, 5), (2, 3, 18), (8, 2, 16)]),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(max_examples=20, deadline=None)
def test_any_graph(sizes: tuple[int, int, int], widths: tuple[int, int, int], seed: int) -> None:
    sources, targets, edges = sizes
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, sources, edges), rng.integers(0, targets, edges)
    graph = SemanticGraph.from_pairs(*pairs, sources, targets, "any")
    check(graph, inputs(graph, *widths, seed=seed), tolerances.FLOAT32, 0.5)


def test_fixed_rows_have_no_gradient_and_change_nothing() -> None:
    graph = GRAPHS["bipartite"]
    arrays, table = inputs(graph, 8, 4, 30), jax.device_put(as_table(graph))
    both = run(table, arrays, np.uint32(1), rate=0.2), run(table, arrays, np.uint32(1), rate=0.2, of_rows=False)
    for own, fixed in zip((both[0][0], *both[0][2:]), both[1], strict=True):
        np.testing.assert_array_equal(own, fixed)
    for of_rows in (True, False):  # that of fixed rows is not computed at all
        program = run.lower(table, arrays, np.uint32(1), of_rows=of_rows).compile().as_text()
        (call,) = [line for line in program.splitlines() if "jhgnn_row_attention_backward" in line]
        assert ("f32[0,0]" in call) != of_rows


def test_padding_rows_take_nothing_and_give_nothing() -> None:
    graph = GRAPHS["bipartite"]
    arrays, table = inputs(graph, 2, 4, 6), as_table(graph)
    padded = SemanticGraph.from_pairs(
        np.asarray(graph.incoming.indices),
        np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr)),
        graph.num_sources + 5,
        graph.num_targets + 70,
        "padded",
    )
    x, weight, columns, dst, cotangent = arrays
    longer = (np.pad(x, ((0, 5), (0, 0))), weight, columns, np.pad(dst, ((0, 70), (0, 0)), constant_values=9.0))
    wide = (*longer, np.pad(cotangent, ((0, 70), (0, 0)), constant_values=9.0))
    own = run(jax.device_put(table), arrays, np.uint32(0))
    more = run(jax.device_put(as_table(padded)), wide, np.uint32(0))
    for short, long in zip(own, more, strict=True):
        rows = len(short)
        np.testing.assert_allclose(long[:rows], short, rtol=0, atol=1e-5)
        assert not np.asarray(long[rows:]).any()


def test_extreme_logits() -> None:
    graph = GRAPHS["bipartite"]
    x, weight, columns, dst, cotangent = inputs(graph, 2, 4, 6)
    arrays = (x, weight, columns * 4e3, dst * 1e4, cotangent)
    out, *gradients = run(jax.device_put(as_table(graph)), arrays, np.uint32(0))
    assert all(np.isfinite(each).all() for each in (out, *gradients))
    assert_close(out, expected(graph, arrays)[0], 2e-2, 1.0, "out")


@pytest.mark.parametrize(("senders", "counts"), [([[0, 37]], [2]), ([[0, -1]], [2]), ([[0, 1]], [3]), ([[0, 1]], [-1])])
def test_a_malformed_table_is_refused(senders: list, counts: list) -> None:
    graph = GRAPHS["bipartite"]
    table = as_table(graph)
    table.senders[:1, :2], table.num_neighbors[:1] = senders, counts
    if counts == [3]:
        table.num_neighbors[:1] = table.width + 1
    refused = (ValueError, jax.errors.JaxRuntimeError)  # by whether the call or its result raises it
    with pytest.raises(refused, match="malformed table: a sender or a number of neighbours is out of range"):
        jax.block_until_ready(run(jax.device_put(table), inputs(graph, 2, 4, 6), np.uint32(0)))


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS["bipartite"]
    table = as_table(graph)
    x, weight, columns, dst, _ = inputs(graph, 2, 4, 6)
    attend = partial(row_attention, table, implementation="native")
    with pytest.raises(ValueError, match=r"got x \(37, 5\)"):
        attend(x[:, :5], weight, columns, dst)
    with pytest.raises(ValueError, match=r"weight \(6, 7\)"):
        attend(x, weight[:, :7], columns, dst)
    with pytest.raises(ValueError, match="need dropout_rate in"):
        attend(x, weight, columns, dst, dropout_rate=1.0)
    with pytest.raises(ValueError, match=r"dropout_rate 0\.5 needs a dropout_seed"):
        attend(x, weight, columns, dst, dropout_rate=0.5)
    with pytest.raises(ValueError, match="computes in float32 and got bfloat16"):
        attend(x.astype(jnp.bfloat16), weight, columns, dst)
    many = inputs(graph, 17, 1, 6)[:4]
    with pytest.raises(ValueError, match="at most 16 heads and got 17"):
        attend(*many)
    monkeypatch.setattr(native, "available", lambda: False)
    with pytest.raises(RuntimeError, match="not built"):
        attend(x, weight, columns, dst)


def test_empty_tables_give_zeros() -> None:
    graph = GRAPHS["no_targets"]
    out, *gradients = run(jax.device_put(as_table(graph)), inputs(graph, 2, 4, 6), np.uint32(0))
    assert out.shape == (0, 8)
    assert not any(np.asarray(each).any() for each in gradients)


def test_which_order_takes_fewer_operations() -> None:
    assert weighs_less(edges=10_000, targets=1_000, sources=9_000, heads=8, out_width=64)
    assert not weighs_less(edges=10_000, targets=1_000, sources=1_500, heads=8, out_width=64)  # senders are shared
    assert not weighs_less(edges=10_000, targets=9_000, sources=9_000, heads=8, out_width=64)  # as many receivers
