"""The registry of ops: what a name means for a kind of subject and a platform, what `auto` is, and what is refused."""

import types

import jax
import jax.numpy as jnp
import pytest

from jhgnn import native
from jhgnn.errors import InputError
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import VIEWS, SemanticGraph
from jhgnn.graph.sparse_features import VIEWS as FEATURE_VIEWS
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.native import cuda
from jhgnn.ops.dense_matmul import dense_matmul
from jhgnn.ops.logit_columns import logit_columns
from jhgnn.ops.neighbor_mean import neighbor_mean
from jhgnn.ops.registry import KERNELS, OPS, check_named, check_names, names_of
from jhgnn.profiling.costs import NATIVE
from jhgnn.profiling.kernels import CUSTOM_CALL_TYPES
from jhgnn.runtime.platform import PLATFORMS, compiling_for
from tests.ops.cases import GRAPHS, placed


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_a_name_is_one_implementation_of_a_kind_on_a_platform_and_the_last_one_runs_anywhere(op) -> None:
    for takes in {each.takes for each in op.implementations}:
        own = [each for each in op.implementations if each.takes is takes]
        assert own[-1].platforms is None
        for platform in PLATFORMS:
            names = [each.name for each in own if each.runs_on(platform)]
            assert len(names) == len(set(names))


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_views_are_those_that_a_graph_can_have(op) -> None:
    known = {SemanticGraph: set(VIEWS), NeighborTable: {"edges"}, SparseFeatures: set(FEATURE_VIEWS)}
    for each in op.implementations:
        assert set(each.views) <= known.get(each.takes, set())


def test_what_an_implementation_is_not_for_is_said() -> None:
    op = OPS["neighbor_mean"]
    with pytest.raises(ValueError, match=r"has no implementation 'fast'; choose of .*'dense', 'native', 'segment'"):
        op.find("fast", SemanticGraph, "cpu")
    with pytest.raises(ValueError, match=r"'dense' for sampled neighbours; choose of .*'fanout', 'native'"):
        op.find("dense", NeighborTable, "cpu")
    with pytest.raises(ValueError, match=r"'native' on tpu; choose of .*'dense', 'segment'"):
        op.find("native", SemanticGraph, "tpu")


def test_a_kernel_of_another_platform_is_refused_where_it_is_called() -> None:
    with compiling_for("tpu"), pytest.raises(ValueError, match="no implementation 'native' on tpu"):
        neighbor_mean(placed(GRAPHS["bipartite"]), jnp.ones((37, 2)), implementation="native")


def test_auto_leaves_out_what_is_not_built_and_what_has_no_view(monkeypatch) -> None:
    op = OPS["neighbor_mean"]
    assert op.choose(NeighborTable, platform="cpu", views=("edges",))[0] == "native"
    assert op.choose(NeighborTable, platform="cpu", views=()) == ("fanout", "sampled neighbours")
    monkeypatch.setattr(native, "available", lambda: False)
    assert op.choose(GRAPHS["one_edge"], platform="cpu") == ("dense", "native kernels not built, 8% dense on cpu")
    assert op.choose(GRAPHS["isolated"], platform="cpu")[0] == "segment"


def test_recipes_name_implementations() -> None:
    kernels = types.SimpleNamespace(**dict.fromkeys(KERNELS, "auto"))
    check_names(kernels)
    for key in KERNELS:
        for name in names_of(key):
            check_names(types.SimpleNamespace(**vars(kernels) | {key: name}))
        with pytest.raises(InputError, match=rf"kernels.{key} = 'fast' is not one of 'auto', "):
            check_names(types.SimpleNamespace(**vars(kernels) | {key: "fast"}))


def test_a_name_that_does_not_work_on_the_subject_is_refused(monkeypatch) -> None:
    check_named("mean", "auto", NeighborTable)
    check_named("mean", "fanout", NeighborTable)
    with pytest.raises(InputError, match=r"kernels.mean = 'dense': .* for sampled neighbours"):
        check_named("mean", "dense", NeighborTable)
    check_named("attention", "rows", NeighborTable)
    with pytest.raises(InputError, match=r"kernels.attention = 'rows' is for sampled neighbours, not for a whole"):
        check_named("attention", "rows", SemanticGraph)
    monkeypatch.setattr(native, "available", lambda: False)
    with pytest.raises(InputError, match=r"kernels.attention = 'rows': the native CPU kernels are not built"):
        check_named("attention", "rows", NeighborTable)
    with pytest.raises(InputError, match=r"kernels.mean = 'native': the native CPU kernels are not built"):
        check_named("mean", "native", SemanticGraph)


def test_profiles_know_every_kernel() -> None:
    names = {f"jhgnn_{name}" for name in (*native.HANDLERS, *cuda.HANDLERS)}
    assert names == {name for name in CUSTOM_CALL_TYPES if name.startswith("jhgnn_")} == set(NATIVE)


@pytest.mark.skipif(not native.available(), reason="needs the native kernels")
def test_no_kernel_of_the_cpu_is_in_a_program_for_a_gpu() -> None:
    x, stack, vectors = jnp.ones((512, 32)), jnp.ones((2, 32, 64)), jnp.ones((2, 8, 8))

    def loss(weight: jax.Array, stack: jax.Array) -> jax.Array:
        return dense_matmul(x, weight).sum() + logit_columns(stack, [0, 1], vectors).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    arguments = jnp.ones((32, 32)), stack
    assert "custom_call @jhgnn" in gradient.lower(*arguments).as_text()
    with compiling_for("cuda"):
        text = gradient.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @jhgnn" not in text
