"""Joined states and index arrays are the trees that they were made of."""

import contextlib
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import sparse

from jhgnn.config import KernelsConfig
from jhgnn.data import load
from jhgnn.graph.degree_buckets import degree_buckets
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.runtime.platform import compiling_for
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.call_arguments import MOST_INDICES, JoinedIndices, JoinedState
from jhgnn.training.joined_leaves import MOST_ELEMENTS
from jhgnn.training.state import TrainState
from tests.executions import configured, whole
from tests.models.heterographs import academic


def params() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 2), "b": (5,), "c": (), "d": (1, 4), "table": (MOST_ELEMENTS // 4 + 1, 4)}
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


def state() -> TrainState:
    own = params()
    moments = optax.adam(0.1).init(own)
    return TrainState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), own, moments)


def semantic_graph() -> SemanticGraph:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 90, 50)
    senders = rng.integers(0, 40, counts.sum())
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return SemanticGraph.from_incoming(indptr, senders.astype(np.int32), 40, "drawn")


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("tree", [params(), state()], ids=["parameters", "state"])
def test_split_gives_back_what_was_joined(tree: Any) -> None:
    joined_state = JoinedState(params())
    joined = joined_state.join(tree)
    assert len(jax.tree.leaves(joined)) < len(jax.tree.leaves(tree))
    assert_same(joined_state.split(joined), tree)
    assert_same(jax.jit(joined_state.traced_split)(joined), tree)
    assert joined_state.abstract(tree) == jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), joined
    )


def test_join_on_the_host_and_in_a_program_are_the_same() -> None:
    joined_state = JoinedState(params())
    assert_same(joined_state.join(state()), jax.jit(joined_state.traced_join)(state()))


def test_what_is_joined_already_or_neither_stays() -> None:
    joined_state = JoinedState(params())
    joined = joined_state.join(state())
    assert_same(joined_state.join(joined), joined)
    step = jnp.ones((), jnp.int32)
    assert joined_state.join(step) is step
    assert joined_state.split(step) is step


def test_few_parameters_stay_as_they_are() -> None:
    few = {"a": jnp.ones(3)}
    assert JoinedState(few).join(few) is few


def test_nothing_is_joined_where_it_does_not_pay() -> None:
    tree = state()
    apart = JoinedState(params(), joins=False)
    assert apart.join(tree) is tree
    assert apart.split(tree) is tree
    assert_same(apart.abstract(tree), jax.eval_shape(lambda: tree))


def test_whole_graphs_train_to_the_same_parameters_joined_and_apart() -> None:
    found = []
    for joins in (True, False):
        execution = whole(academic(), configured(name="rgcn", layers=2))
        execution._joins = joins
        programs = execution.compile()
        current = programs.initial_state(0)
        assert isinstance(current.params, list) is joins
        with contextlib.closing(programs.feed(0).iterate(Cursor())) as batches:
            for _, batch in zip(range(3), batches, strict=False):
                current, _ = programs.update(current, batch)
        scores = programs.evaluate(current.params, ("train", "val"), 0)
        found.append((programs.whole(current), scores))
    (one, scores_of_one), (other, scores_of_other) = found
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    for split, figures in scores_of_one.items():
        assert figures == pytest.approx(scores_of_other[split], rel=1e-4)


def test_index_arrays_of_buckets_are_one_vector_and_nothing_else_is_joined() -> None:
    counts = np.random.default_rng(1).integers(0, 200, 300)
    buckets = jax.device_put(degree_buckets(np.concatenate([[0], np.cumsum(counts)])))
    large = jax.device_put(degree_buckets(np.arange(MOST_INDICES + 2)))
    tree = {"features": jnp.ones((4, 2)), "ids": jnp.arange(7), "buckets": (buckets, large)}
    joined = JoinedIndices(tree)
    small = [leaf for leaf in jax.tree.leaves(tree["buckets"]) if leaf.size <= MOST_INDICES]
    assert len(small) > 3
    assert len(joined.arrays) == len(jax.tree.leaves(tree)) - len(small) + 1
    assert joined.arrays[-1].shape == (sum(leaf.size for leaf in small),)
    assert_same(jax.jit(joined.traced_split)(joined.arrays), tree)


def test_index_arrays_of_graphs_in_buckets_are_joined_and_those_of_other_graphs_are_not() -> None:
    graph = semantic_graph()
    in_buckets, compressed = graph.place(("buckets",)), graph.place(())
    joined = JoinedIndices({"loops": in_buckets, "kernels": compressed})
    assert len(joined.arrays) == len(jax.tree.leaves(compressed)) + 1
    assert_same(jax.jit(joined.traced_split)(joined.arrays), {"loops": in_buckets, "kernels": compressed})


def test_values_of_sparse_features_in_buckets_stay() -> None:
    table = SparseFeatures.from_scipy(sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(2)))
    features = table.place(("buckets",))
    joined = JoinedIndices(features)
    assert [array.dtype for array in joined.arrays] == [jnp.float32, jnp.float32, jnp.int32]
    assert_same(jax.jit(joined.traced_split)(joined.arrays), features)


def test_rgcn_on_dblp_is_called_with_few_arrays_on_a_gpu() -> None:
    """As docs/gpu.md says; with the examples' ids."""
    config = configured(name="rgcn", layers=0, hidden=64, heads=8)
    config = dataclasses.replace(config, kernels=KernelsConfig(mean="bucketed", projection="bucketed"))
    with compiling_for("cuda"):
        execution = whole(load("synthetic", "dblp", progress=False), config)
        apart = len(jax.tree.leaves((execution.abstract_state, execution.resident))) + 1
        assert (len(jax.tree.leaves(execution.update_shapes)), apart) == (34, 324)


def test_without_buckets_the_arguments_are_the_tree() -> None:
    tree = {"features": jnp.ones((4, 2)), "ids": jnp.arange(7), "graph": semantic_graph().place(())}
    joined = JoinedIndices(tree)
    assert joined.arrays is tree
    assert joined.traced_split(tree) is tree
