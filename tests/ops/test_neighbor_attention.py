"""Every implementation of neighbor_attention against float64: values, gradients, dropout mask, dtypes, invariances."""

from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jhgnn import native
from jhgnn.graph import degree_buckets
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.native import cuda
from jhgnn.ops.neighbor_attention import OP, neighbor_attention
from jhgnn.ops.neighbor_attention.native import attention_row_size
from jhgnn.runtime.platform import compiling_for
from tests.ops import reference, tolerances
from tests.ops.cases import GRAPHS, HUBS, Way, is_tiled, mean_size, of_each, on_each_graph, placed, relabelled, ways
from tests.ops.tolerances import assert_close

RESULTS = ("out", "d_z", "d_logit_src", "d_logit_dst")
HEAD_WIDTHS = [(8, 8), (8, 64), (1, 64), (4, 16), (2, 32), (1, 1), (3, 5), (5, 3), (7, 1), (16, 4), (17, 3), (33, 2)]

WAYS = ways(OP)


def inputs(
    graph: SemanticGraph, heads: int, width: int, *, scale: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """(z, logit_src, logit_dst, cotangent), float32, normally distributed; logits times `scale`."""
    rng = np.random.default_rng(seed)
    shapes = [(graph.num_sources, heads, width), (graph.num_sources, heads), (graph.num_targets, heads)]
    z, src, dst = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    cotangent = rng.normal(size=(graph.num_targets, heads, width)).astype(np.float32)
    return z, (scale * src).astype(np.float32), (scale * dst).astype(np.float32), cotangent


@partial(jax.jit, static_argnames=("implementation", "slope", "rate"))
def run(
    graph: Any, arrays: tuple, seed: Any, *, implementation: str, slope: float = 0.2, rate: float = 0.0
) -> tuple[jax.Array, ...]:
    *primals, cotangent = arrays
    out, vjp = jax.vjp(_op(graph, seed, implementation, slope, rate), *primals)
    return out, *vjp(cotangent)


def _op(graph: Any, seed: Any, implementation: str, slope: float, rate: float) -> Callable[..., jax.Array]:
    return lambda z, src, dst: neighbor_attention(
        graph,
        z,
        src,
        dst,
        negative_slope=slope,
        dropout_rate=rate,
        dropout_seed=seed,
        implementation=implementation,
    )


def check(graph: SemanticGraph, arrays: tuple, way: Way | str, tolerance: float, **options: Any) -> None:
    way = Way(way) if isinstance(way, str) else way
    seed = np.uint32(options.pop("seed", 0))
    with compiling_for(way.platform):
        actual = run(placed(graph, way.takes), arrays, seed, implementation=way.name, **options)
    expected = reference.attention(graph, *arrays, seed=int(seed), **options)
    z, _, _, cotangent = arrays
    size = z.shape[-1] * mean_size(z) * mean_size(cotangent) / (1.0 - options.get("rate", 0.0))
    for name, ours, exact in zip(RESULTS, actual, expected, strict=True):
        assert ours.dtype == arrays[0].dtype, name
        assert_close(ours, exact, tolerance, max(size, mean_size(exact)), name)


@on_each_graph(WAYS)
def test_agrees_with_float64(name: str, way: Way) -> None:
    graph = GRAPHS[name]
    tolerance = tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32
    check(graph, inputs(graph, 3, 5), way, tolerance, rate=0.4, seed=11)


@pytest.mark.parametrize("rate", [0.0, 0.6])
@pytest.mark.parametrize(("heads", "width"), HEAD_WIDTHS)
def test_native_covers_any_heads_and_width(heads: int, width: int, rate: float) -> None:
    graph = GRAPHS["bipartite"]
    check(graph, inputs(graph, heads, width), "native", tolerances.FLOAT32, rate=rate, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.6])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (3, 20), (16, 3)])
def test_native_in_tiles_of_columns(heads: int, width: int, rate: float) -> None:
    graph = GRAPHS["tiled"]
    assert is_tiled(graph, 4 * attention_row_size(heads, width, 4)[0])
    check(graph, inputs(graph, heads, width), "native", tolerances.FLOAT32_HUB, rate=rate, seed=5)


@pytest.mark.parametrize("implementation", ["native", "bucketed"])
@pytest.mark.parametrize("shift", [4.0, -4.0])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (3, 5)])
def test_gradient_of_receivers_does_not_cancel(heads: int, width: int, shift: float, implementation: str) -> None:
    """Where nearly all of a receiver's logits have one sign, it is small beside the sums that it comes from."""
    graph = GRAPHS["dense"]
    z, src, dst, cotangent = inputs(graph, heads, width, scale=2.0)
    arrays = (z, src, (0.1 * dst + shift).astype(np.float32), cotangent)
    ours = np.asarray(run(placed(graph), arrays, np.uint32(0), implementation=implementation)[3], np.float64)
    exact = reference.attention(graph, *arrays)[3]
    assert 1e-6 < np.abs(exact).max() < 0.2 * width
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["segment", "dense", "bucketed"])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 3)])
def test_xla_covers_heads_and_width(heads: int, width: int, implementation: str) -> None:
    check(GRAPHS["dense"], inputs(GRAPHS["dense"], heads, width), implementation, tolerances.FLOAT32)


@of_each(WAYS)
@pytest.mark.parametrize(("heads", "width"), [(0, 3), (2, 0)])
def test_no_heads_or_no_width_give_empty_results(heads: int, width: int, way: Way) -> None:
    graph = GRAPHS["bipartite"]
    z, src, dst, _ = map(jnp.asarray, inputs(graph, heads, width))
    out = neighbor_attention(placed(graph, way.takes), z, src, dst, implementation=way.name)
    assert out.shape == (graph.num_targets, heads, width)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hub_in", "hub_out", "bipartite"])
def test_bucketed_in_parts_and_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As graphs of millions of edges are, whose buckets are summed part by part and whose pieces go round."""
    monkeypatch.setattr(degree_buckets, "PART_ENTRIES", 256)
    monkeypatch.setattr(degree_buckets, "MOST_PIECES", 8)
    graph = GRAPHS[name]
    check(graph, inputs(graph, 2, 3), "bucketed", tolerances.FLOAT32_HUB, rate=0.4, seed=11)


@of_each(WAYS)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_extreme_logits(scale: float, rate: float, way: Way) -> None:
    graph = GRAPHS["dense"]
    arrays = inputs(graph, 4, 3, scale=scale)
    check(graph, arrays, way, tolerances.EXTREME, rate=rate)


@pytest.mark.slow
@of_each(WAYS)
@pytest.mark.parametrize("hub", ["hub_in", "hub_out"])
def test_extreme_logits_at_a_hub(hub: str, way: Way) -> None:
    # One outlier far above all other sources: the targets that it does not reach are on the native safe path.
    graph = GRAPHS[hub]
    z, src, dst, cotangent = inputs(graph, 2, 3)
    src[-1] = 1e4
    check(graph, (z, src, dst, cotangent), way, tolerances.EXTREME)


@of_each(WAYS)
def test_equal_logits_at_the_kink_take_the_upper_slope(way: Way) -> None:
    # Logits of exactly 0 where the factors differ: the sign must not depend on rounding.
    graph = GRAPHS["dense"]
    z, src, dst, cotangent = inputs(graph, 2, 3)
    src[::2], dst[::2] = 0.0, 0.0
    check(graph, (z, src, dst, cotangent), way, tolerances.FLOAT32)


@pytest.mark.slow
@of_each(WAYS)
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_slopes_at_the_ends(slope: float, way: Way) -> None:
    check(GRAPHS["dense"], inputs(GRAPHS["dense"], 2, 4), way, tolerances.FLOAT32, slope=slope)


@of_each(WAYS)
def test_bfloat16_in_float32_sums(way: Way) -> None:
    graph = GRAPHS["dense"]
    arrays = tuple(jnp.asarray(array, jnp.bfloat16) for array in inputs(graph, 4, 8))
    check(graph, arrays, way, tolerances.BFLOAT16, rate=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["segment", "dense", "bucketed"])
def test_float64_where_xla_computes(implementation: str) -> None:
    graph = GRAPHS["dense"]
    with jax.enable_x64(True):
        arrays = tuple(jnp.asarray(array, jnp.float64) for array in inputs(graph, 2, 3))
        check(graph, arrays, implementation, tolerances.FLOAT64, rate=0.3)


def test_native_refuses_float64() -> None:
    graph = GRAPHS["dense"]
    with jax.enable_x64(True):
        z, src, dst, _ = (jnp.asarray(array, jnp.float64) for array in inputs(graph, 2, 3))
        with pytest.raises(ValueError, match="float64; cast, or use implementation 'segment'"):
            neighbor_attention(placed(graph), z, src, dst, implementation="native")


def test_gradients_against_finite_differences() -> None:
    graph, step = GRAPHS["bipartite"], 1e-6
    arrays = [np.asarray(array, np.float64) for array in inputs(graph, 2, 3)]
    *primals, cotangent = arrays
    gradients = reference.attention(graph, *arrays, rate=0.3)[1:]
    rng = np.random.default_rng(9)
    for index, gradient in enumerate(gradients):
        direction = rng.normal(size=primals[index].shape)
        outputs = []
        for sign in (1, -1):
            moved = list(primals)
            moved[index] = primals[index] + sign * step * direction
            outputs.append(reference.attention(graph, *moved, cotangent, rate=0.3)[0])
        slope = (cotangent * (outputs[0] - outputs[1])).sum() / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6)


@pytest.mark.slow
def test_all_implementations_drop_the_same_edges() -> None:
    graph = GRAPHS["bipartite"]
    z, src, dst, _ = inputs(graph, 8, 37)
    z = np.broadcast_to(np.eye(37, dtype=np.float32)[:, None, :], z.shape)  # out[v, h, u] = weight of u -> v
    masks = {
        way: np.asarray(
            run(
                placed(graph, way.takes),
                (z, src, dst, np.zeros((29, 8, 37), np.float32)),
                np.uint32(3),
                rate=0.5,
                implementation=way.name,
            )[0]
        )
        > 0
        for way in WAYS
    }
    exact = masks[Way("segment")]
    share = exact.sum() / (np.asarray(placed(graph).adjacency) > 0).sum() / 8
    assert 0.45 < share < 0.55
    for way, mask in masks.items():
        np.testing.assert_array_equal(mask, exact, err_msg=str(way))


@pytest.mark.parametrize(
    "implementation", ["native", *(pytest.param(n, marks=pytest.mark.slow) for n in ("dense", "segment"))]
)
def test_jit_and_checkpoint_change_nothing(implementation: str) -> None:
    graph, arrays = placed(GRAPHS["bipartite"]), tuple(map(jnp.asarray, inputs(GRAPHS["bipartite"], 2, 4)))
    plain = _op(graph, jnp.uint32(4), implementation, 0.2, 0.3)

    def loss(function: Callable[..., jax.Array]) -> tuple[jax.Array, ...]:
        return jax.grad(lambda *a: (function(*a) * arrays[-1]).sum(), argnums=(0, 1, 2))(*arrays[:-1])

    expected = loss(plain)
    for ours in (jax.jit(lambda: loss(jax.checkpoint(plain)))(), jax.jit(lambda: loss(plain))()):
        for a, b in zip(expected, ours, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@of_each(WAYS)
def test_relabelling_permutes_the_outputs(way: Way) -> None:
    graph = GRAPHS["bipartite"]
    rng = np.random.default_rng(2)
    sources, targets = rng.permutation(graph.num_sources), rng.permutation(graph.num_targets)
    z, src, dst, cotangent = inputs(graph, 3, 4)
    moved = tuple(np.empty_like(array) for array in (z, src, dst, cotangent))
    moved[0][sources], moved[1][sources], moved[2][targets], moved[3][targets] = z, src, dst, cotangent
    before = run(placed(graph, way.takes), (z, src, dst, cotangent), np.uint32(0), implementation=way.name)
    after = run(placed(relabelled(graph, sources, targets), way.takes), moved, np.uint32(0), implementation=way.name)
    for name, a, b, order in zip(RESULTS, before, after, (targets, sources, sources, targets), strict=True):
        assert_close(np.asarray(b)[order], np.asarray(a, np.float64), tolerances.FLOAT32, 4.0, name)


@hypothesis.given(
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 60)),
    heads=st.sampled_from([1, 2, 3, 8, 9]),
    width=st.integers(1, 9),
    rate=st.sampled_from([0.0, 0.25, 0.9]),
    scale=st.sampled_from([0.0, 1.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_graphs_native(
    sizes: tuple[int, int, int], heads: int, width: int, rate: float, scale: float, seed: int
) -> None:
    num_sources, num_targets, num_edges = sizes
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, num_sources, num_edges), rng.integers(0, num_targets, num_edges)
    graph = SemanticGraph.from_pairs(*ends, num_sources, num_targets, "any")
    tolerance = tolerances.FLOAT32 if scale <= 1.0 else 10 * tolerances.FLOAT32  # logits of 100 are 8e-6 apart
    check(graph, inputs(graph, heads, width, scale=scale, seed=seed), "native", tolerance, rate=rate, seed=seed)


def test_same_bits_on_each_run() -> None:
    graph = GRAPHS["hub_in"]
    arrays = inputs(graph, 8, 8)
    first, second = (run(placed(graph), arrays, np.uint32(1), implementation="native", rate=0.5) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_auto_takes_fused_kernels_where_they_are_built_and_density_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.available()
    assert OP.choose(GRAPHS["bipartite"]) == ("native", f"fused CPU kernel, {native.instruction_set()}")
    monkeypatch.setattr(cuda, "available", lambda: False)
    assert OP.choose(GRAPHS["dense"], platform="cuda") == ("bucketed", "native kernels not built, no scatters")
    monkeypatch.setattr(cuda, "available", lambda: True)
    assert OP.choose(GRAPHS["dense"], platform="cuda")[0] == "native"
    assert OP.choose(NeighborTable, platform="cuda")[0] == "bucketed"
    assert OP.choose(GRAPHS["dense"], platform="tpu")[0] == "dense"
    assert OP.choose(GRAPHS["hub_in"], platform="tpu") == ("dense", "3342% dense on tpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"implementation": "fast"}, "has no implementation 'fast'"),
        ({"dropout_rate": 0.5}, "needs a dropout_seed"),
        ({"dropout_rate": 1.0}, r"need dropout_rate in \[0, 1\)"),
        ({"logit_dst": np.zeros((3, 3), np.float32)}, "logit_dst"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    graph = GRAPHS["bipartite"]
    z, src, dst, _ = inputs(graph, 2, 3)
    arguments: dict[str, Any] = {"z": z, "logit_src": src, "logit_dst": dst, "implementation": "segment"} | change
    with pytest.raises(ValueError, match=message):
        neighbor_attention(placed(graph), **arguments)


@pytest.mark.parametrize(
    ("implementation", "view"), [("segment", "coo"), ("dense", "adjacency"), ("bucketed", "buckets")]
)
def test_a_graph_without_the_view_is_refused(implementation: str, view: str) -> None:
    graph = GRAPHS["bipartite"]
    z, src, dst, _ = map(jnp.asarray, inputs(graph, 2, 3))
    with pytest.raises(ValueError, match=f"without its '{view}' view"):
        neighbor_attention(graph.place(()), z, src, dst, implementation=implementation)
