"""The kernels of GPUs by their own sources, executed on the CPU: conformance tests of every op, and planted faults."""

import dataclasses
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.config import TrainingConfig
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.native import cuda
from jhgnn.ops import neighbor_attention, neighbor_mean, neighbor_sum
from jhgnn.runtime.platform import compiling_for
from jhgnn.training.optimizer import make_optimizer
from tests.models.heterographs import academic
from tests.native.host_kernels import FAULTS, ROOT, build
from tests.native.host_kernels import host_kernels as _host_kernels
from tests.ops import reference, tolerances
from tests.ops import test_neighbor_attention as attention
from tests.ops import test_neighbor_reduce as reduce
from tests.ops import test_sparse_matmul as sparse
from tests.ops import test_table_rows as table_rows
from tests.ops.cases import GRAPHS, HUBS, Way, kernels, mean_size, of_each, on_each_graph, placed
from tests.ops.tolerances import assert_close
from tests.stores import test_rows as stores
from tests.training import minibatches

host_kernels = _host_kernels
pytestmark = pytest.mark.usefixtures("host_kernels")

ATTENTION, MEAN, SUM = (kernels(op.OP, "cuda") for op in (neighbor_attention, neighbor_mean, neighbor_sum))
WHOLE = Way("native", platform="cuda")
HEAD_WIDTHS = [(8, 8), (8, 64), (1, 64), (2, 32), (1, 1), (3, 5), (7, 1), (16, 4), (17, 3), (33, 2), (1, 300), (2, 516)]
"""Of words of eight and four columns and of single ones; a group of a warp, a warp, several of them."""


def tolerance(name: str) -> float:
    return tolerances.FLOAT32_HUB if name in HUBS else tolerances.FLOAT32


@on_each_graph(ATTENTION)
def test_attention(name: str, way: Way) -> None:
    graph = GRAPHS[name]
    attention.check(graph, attention.inputs(graph, 3, 5), way, tolerance(name), rate=0.4, seed=11)


@on_each_graph(MEAN)
def test_mean(name: str, way: Way) -> None:
    reduce.check("mean", GRAPHS[name], *reduce.inputs(GRAPHS[name], 6), way, tolerance(name))


@pytest.mark.slow
@on_each_graph(SUM)
def test_weighted_sum(name: str, way: Way) -> None:
    graph = GRAPHS[name]
    x, cotangent = reduce.inputs(graph, 36)
    weights = np.random.default_rng(4).normal(size=graph.num_edges).astype(np.float32)
    with compiling_for("cuda"):
        actual = reduce.run(neighbor_sum.neighbor_sum, placed(graph), x, weights, cotangent, implementation=way.name)
        plain = reduce.run(neighbor_sum.neighbor_sum, placed(graph), x, cotangent, implementation=way.name)
    expected = reference.weighted_sum(graph, x, weights, cotangent)
    for what, ours, exact in zip(("out", "d_x", "d_weights"), actual, expected, strict=True):
        assert_close(ours, exact, tolerance(name), mean_size(exact), what)
    expected = reference.weighted_sum(graph, x, np.ones(graph.num_edges), cotangent)
    for what, ours, exact in zip(("out", "d_x"), plain, expected[:2], strict=True):
        assert_close(ours, exact, tolerance(name), mean_size(exact), f"unweighted {what}")


@pytest.mark.slow
@pytest.mark.parametrize("takes", [SparseFeatures, SparseRows])
@pytest.mark.parametrize("name", sorted(set(sparse.MATRICES) - {"no_columns"}))
def test_sparse_products(name: str, takes: type) -> None:
    size = tolerances.FLOAT32_HUB if name.startswith("full_") else tolerances.FLOAT32
    with compiling_for("cuda"):
        sparse.check(sparse.MATRICES[name], 21, "native", jnp.float32, size, takes)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_stack_of_sparse_products(dtype: Any) -> None:
    with compiling_for("cuda"):
        sparse.check_stack(
            sparse.MATRICES["random"], np.random.default_rng(0).normal(size=(3, 70, 20)), "native", dtype
        )


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.6])
@pytest.mark.parametrize(("heads", "width"), HEAD_WIDTHS)
def test_attention_of_any_heads_and_width(heads: int, width: int, rate: float) -> None:
    graph = GRAPHS["bipartite"]
    attention.check(graph, attention.inputs(graph, heads, width), WHOLE, tolerances.FLOAT32, rate=rate, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 8, 33, 64, 128, 129, 132, 300, 520])
def test_mean_of_any_width(width: int, dtype: Any) -> None:
    graph = GRAPHS["bipartite"]
    x, cotangent = (jnp.asarray(array, dtype) for array in reduce.inputs(graph, width))
    size = tolerances.FLOAT32 if dtype == jnp.float32 else tolerances.BFLOAT16
    reduce.check("mean", graph, x, cotangent, WHOLE, size)


@pytest.mark.parametrize("width", [5, 8, 160])
def test_attention_in_bfloat16(width: int) -> None:
    graph = GRAPHS["dense"]
    arrays = tuple(jnp.asarray(array, jnp.bfloat16) for array in attention.inputs(graph, 4, width))
    attention.check(graph, arrays, WHOLE, tolerances.BFLOAT16, rate=0.3)


@of_each(ATTENTION)
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_extreme_logits(scale: float, way: Way) -> None:
    graph = GRAPHS["dense"]
    attention.check(graph, attention.inputs(graph, 4, 3, scale=scale), way, tolerances.EXTREME, rate=0.5)


@pytest.mark.parametrize("hub", ["hub_in", "hub_out"])
def test_one_logit_above_all_others_at_a_hub(hub: str) -> None:
    graph = GRAPHS[hub]
    z, src, dst, cotangent = attention.inputs(graph, 2, 3)
    src[-1] = 1e4
    attention.check(graph, (z, src, dst, cotangent), WHOLE, tolerances.EXTREME)


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_slopes_at_the_ends_and_logits_at_the_kink(slope: float) -> None:
    graph = GRAPHS["dense"]
    z, src, dst, cotangent = attention.inputs(graph, 2, 4)
    src[::2], dst[::2] = 0.0, 0.0
    attention.check(graph, (z, src, dst, cotangent), WHOLE, tolerances.FLOAT32, slope=slope)


@pytest.mark.parametrize("shift", [4.0, -4.0])
def test_gradient_of_receivers_does_not_cancel(shift: float) -> None:
    with compiling_for("cuda"):
        attention.test_gradient_of_receivers_does_not_cancel(8, 8, shift, "native")


def test_it_drops_what_the_reference_drops() -> None:
    graph, masks = GRAPHS["bipartite"], []
    z, src, dst, _ = attention.inputs(graph, 8, 37)
    z = np.broadcast_to(np.eye(37, dtype=np.float32)[:, None, :], z.shape)  # out[v, h, u] = weight of u -> v
    arrays = z, src, dst, np.zeros((29, 8, 37), np.float32)
    for way in (*ATTENTION, Way("segment")):
        with compiling_for(way.platform):
            found = attention.run(placed(graph, way.takes), arrays, np.uint32(3), rate=0.5, implementation=way.name)
        masks.append(np.asarray(found[0]) > 0)
    for mask in masks[:-1]:
        np.testing.assert_array_equal(mask, masks[-1])


def test_results_do_not_depend_on_the_order_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS["hub_in"]
    arrays = attention.inputs(graph, 8, 8)
    found = []
    for order in ("forwards", "backwards"):
        monkeypatch.setenv("JHGNN_WARP_ORDER", order)
        with compiling_for("cuda"):
            found.append(attention.run(placed(graph), arrays, np.uint32(1), implementation="native", rate=0.5))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("width", [1, 3, 8, 130])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rows_of_a_table(width: int, dtype: Any) -> None:
    with compiling_for("cuda"):
        table_rows.check("native", np.array([4, -1, 0, 8, -1], np.int32), width, dtype)


def test_no_rows_of_a_table() -> None:
    with compiling_for("cuda"):
        table_rows.check("native", np.zeros(0, np.int32), 3, jnp.float32)
        table_rows.check("native", np.array([1], np.int32), 0, jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "sgd", "lamb"])
def test_lazy_updates_of_tables(name: str) -> None:
    config = dataclasses.replace(TrainingConfig(), optimizer=name, learning_rate=0.05, weight_decay=0.1)
    optimizer, params = make_optimizer(config), stores.parameters()
    arguments = optimizer, params, optimizer.init(params), jax.tree.map(jnp.sin, params)
    ids = {"a": np.array([4, -1, 1], np.int32), "b": np.full(2, -1, np.int32)}
    expected = stores.lazily(*arguments, ids, jnp.asarray(True))
    with compiling_for("cuda"):
        found = stores.lazily(*arguments, ids, jnp.asarray(True), "native")
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("emitted_as_for_users")
def test_mini_batches_train_with_them() -> None:
    found = {}
    for tables in ("xla", "native"):
        config = minibatches.recipe(sampling={"side": "device"})
        config = dataclasses.replace(config, kernels=dataclasses.replace(config.kernels, mean="fanout", tables=tables))
        with compiling_for("cuda"):
            programs = minibatches.compiled(academic(), config)
            found[tables] = minibatches.steps(programs, 3)
            assert ("jhgnn_cuda_write_rows" in programs.execution.lower_update().as_text()) == (tables == "native")
        (choice,) = [each for each in programs.execution.choices if each.op == "table_rows"]
        assert choice.implementation == tables
    jax.tree.map(np.testing.assert_array_equal, found["native"], found["xla"])


@pytest.mark.parametrize(("columns", "together"), [(64, 8), (512, 64), (15, 5), (1, 1), (2000, 4)])
def test_a_layout_covers_every_column_once(columns: int, together: int) -> None:
    layout = cuda.layout_of(columns, together)
    covered = layout.vector * layout.group * layout.blocks
    assert columns <= covered
    assert covered - columns < layout.vector * layout.group
    assert together % layout.vector == 0


@pytest.mark.parametrize("num_entries", [0, 1, 64, 65, 10**6, 2**31 - 1])
def test_carries_stay_small(num_entries: int) -> None:
    for columns, together in ((64, 8), (1, 1), (4096, 4)):
        layout = cuda.layout_of(columns, together)
        tile, carries = cuda.tiles_of("attention", num_entries, layout, 22)
        assert tile * -(-num_entries // tile) < max(num_entries, 1) + tile
        assert 4 * carries <= cuda.CARRY_BYTES


def run_this_file(selected: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Some of these tests with another library, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "--maxfail=8"]
    command += [__file__, "-k", selected]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    """By the same tests that pass without it."""
    library = build(fault=FAULTS[fault])
    done = run_this_file("test_attention or test_mean", JHGNN_CUDA_LIBRARY=str(library))
    assert done.returncode == 1, done.stdout[-2000:]
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed
    backwards = [line for line in failed if "test_attention" in line]
    assert backwards if fault == "a wrong transpose" else len(failed) > 1
