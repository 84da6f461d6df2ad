"""Features kept as bfloat16: steps that compute from rounded rows and nothing else, in half of the bytes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jhgnn
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.training.problem import pose
from jhgnn.training.sampled_choices import plan_sampling
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small
from tests.training.minibatches import recipe, sampled
from tests.training.test_feature_cache import dense

ROUNDED = {"feature_dtype": "bfloat16"}


def uneven():
    """A graph of dense features, none of which a bfloat16 can hold."""
    graph = dense(academic())
    return dataclasses.replace(graph, features={name: matrix / 3 for name, matrix in graph.features.items()})


def rounded(graph):
    """The graph whose features a person rounded."""
    matrices = {name: matrix.astype(jnp.bfloat16).astype(np.float32) for name, matrix in graph.features.items()}
    return dataclasses.replace(graph, features=matrices)


@pytest.mark.parametrize(
    ("model", "side", "evaluation"),
    [
        ("rgcn", "host", "sampled"),
        pytest.param("rgat", "device", "sampled", marks=pytest.mark.slow),
        pytest.param("han", "host", "layerwise", marks=pytest.mark.slow),
        pytest.param("gcn", "device", "layerwise", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_that_on_rounded_features_bit_for_bit(model, side, evaluation):
    graph = uneven()
    sampling = IN_BATCHES | {"features": side, "evaluation": evaluation}
    run = small(graph, model=model, epochs=2, sampling=sampling | ROUNDED)
    by_hand = small(rounded(graph), model=model, epochs=2, sampling=sampling)
    assert bits(run.params) == bits(by_hand.params)
    assert run.scores == by_hand.scores
    np.testing.assert_array_equal(run.embeddings(), by_hand.embeddings())
    assert bits(run.params) != bits(small(graph, model=model, epochs=2, sampling=sampling).params)


@pytest.mark.parametrize(
    "distributed",
    [
        {"method": "random", "strategy": "owner"},
        pytest.param({"strategy": "raf", "relation_shards": 2}, marks=pytest.mark.slow),
    ],
    ids=["parts", "relations first"],
)
@pytest.mark.usefixtures("emitted_as_for_users")
def test_rows_that_devices_send_each_other_are_rounded_once(distributed):
    """Of an odd width, so that a row does not fill its last word."""
    graph = uneven()
    odd = {name: matrix[:, : matrix.shape[1] - 1 + matrix.shape[1] % 2] for name, matrix in graph.features.items()}
    graph = dataclasses.replace(graph, features=odd)
    settings = {"model": "rgcn", "epochs": 1, "distributed": {"devices": 2} | distributed}
    run = small(graph, **settings, sampling=IN_BATCHES | ROUNDED)
    assert bits(run.params) == bits(small(rounded(graph), **settings, sampling=IN_BATCHES).params)


def test_what_is_gathered_takes_half_of_the_bytes():
    graph = dense(academic())
    found = [sampled(graph, recipe(sampling={"features": "host"} | own)) for own in ({}, ROUNDED)]
    full, half = ([leaf.nbytes for leaf in jax.tree.leaves(execution.features.tables)] for execution in found)
    assert full == [2 * own for own in half]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sampling": {"batch_size": 0}}, "sampling.batch_size is 0"),
        ({"sampling": {"hot": "exact"}}, "would round the means"),
        ({"distributed": {"read": "parts", "parts": "folder"}}, "distributed.read = 'parts'"),
    ],
)
def test_what_it_does_not_go_with_is_one_line(changes, line):
    with pytest.raises(InputError, match=line):
        override(recipe(sampling=ROUNDED), changes, where="test")


def test_rows_of_a_file_are_not_copied_into_memory(tmp_path):
    path = jhgnn.save_graph(dense(academic()), tmp_path / "graph")
    problem = pose(load("jhgnn", path, progress=False), recipe(sampling=ROUNDED))
    with pytest.raises(InputError, match="are rows of a file"):
        plan_sampling(problem)
