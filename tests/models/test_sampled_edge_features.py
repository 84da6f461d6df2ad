"""`model.edge_features` in mini-batches: with all neighbours what the whole graph gives, and runs of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jhgnn
from jhgnn.training import layerwise
from tests.executions import configured, forward, noisy, whole
from tests.models.heterographs import academic, with_edge_features
from tests.test_fit import small
from tests.training.minibatches import compiled, recipe, sampled, steps
from tests.training.whole_and_sampled import first_shard, losses_and_gradients

LONG = [pytest.mark.slow, pytest.mark.long]
KEYS = {"rgat": "attention", "rgcn": "mean"}


def in_batches(name, side="host", implementation="auto", fan_out="all", batch_size=24):
    """The execution: a batch holds all 20 training papers, and padding."""
    sampling = {"fan_out": fan_out, "batch_size": batch_size, "side": side}
    config = recipe(name, edge_features=True, residual=True, sampling=sampling)
    kernels = dataclasses.replace(config.kernels, **{KEYS[name]: implementation})
    return sampled(with_edge_features(academic()), dataclasses.replace(config, kernels=kernels))


def over_the_whole_graph(name):
    dropouts = {"feature_dropout": 0.2, "attention_dropout": 0.3, "dropout": 0.3}
    config = configured(name=name, edge_features=True, residual=True, layers=2, **dropouts)
    kernels = dataclasses.replace(config.kernels, **{KEYS[name]: "segment"})
    return whole(with_edge_features(academic()), dataclasses.replace(config, kernels=kernels))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "implementation"),
    [
        ("rgat", "host", "native"),
        pytest.param("rgcn", "host", "native", marks=pytest.mark.long),
        *(
            pytest.param(name, side, each, marks=pytest.mark.long)
            for name in ("rgat", "rgcn")
            for side in ("host", "device")
            for each in ("fanout", "bucketed")
        ),
    ],
)
def test_all_neighbours_give_the_loss_and_gradients_of_the_whole_graph(name, side, implementation):
    """Under the same dropout, which hashes ids of the whole graph."""
    full, part = over_the_whole_graph(name), in_batches(name, side, implementation)
    params = noisy(full.initial_params(1))
    shard = first_shard(part)
    ids = np.asarray(shard.ids)
    assert (ids >= 0).sum() == 20 < len(ids)
    expected, found = losses_and_gradients(full, part, params, shard)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    key = "edge_logits" if name == "rgat" else "edge_projection"
    for layer in (0, 1):
        assert any(np.abs(leaf).max() > 1e-5 for leaf in jax.tree.leaves(expected[1]["layers"][layer][key]))
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected[1]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * largest), found[1], expected[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgat", pytest.param("rgcn", marks=LONG)])
def test_layerwise_evaluation_gives_the_rows_of_the_whole_graph(name, monkeypatch):
    monkeypatch.setattr(layerwise, "CHUNK_ROWS", 13)  # several chunks a layer
    full, part = over_the_whole_graph(name), in_batches(name, fan_out="2")
    params = noisy(full.initial_params(1))
    expected = forward(full, params).embeddings
    np.testing.assert_allclose(part.rows(params, 0)["paper"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["rgat", "rgcn"])
def test_at_the_end_of_time_rows_are_those_of_the_whole_graph(name):
    graph, rng = with_edge_features(academic()), np.random.default_rng(4)
    edges = {
        relation: dataclasses.replace(own, times=rng.integers(0, 8, own.num_edges))
        for relation, own in graph.edges.items()
    }
    graph = dataclasses.replace(graph, edges=edges, node_times={"paper": np.full(graph.num_nodes["paper"], 9)})
    config = recipe(name, edge_features=True, residual=True, sampling={"fan_out": "all", "temporal": "until"})
    full = over_the_whole_graph(name)
    params = noisy(full.initial_params(1))
    expected = forward(full, params).embeddings
    np.testing.assert_allclose(sampled(graph, config).rows(params, 0)["paper"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["rgat", "rgcn"])
@pytest.mark.parametrize("way", ["two devices", "micro-batches"])
def test_two_devices_and_micro_batches_do_what_one_device_does(name, way):
    graph = with_edge_features(academic())
    config = recipe(name, edge_features=True)
    parts = {"micro_batches": 2} if way == "micro-batches" else {}
    changed = dataclasses.replace(config, training=dataclasses.replace(config.training, **parts))
    (one, _), (other, _) = (
        steps(compiled(graph, config), 3),
        steps(compiled(graph, changed, 2 if way == "two devices" else 1), 3),
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), other.params, one.params)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("compile_cache")
@pytest.mark.parametrize("name", ["rgat", "rgcn"])
@pytest.mark.parametrize("evaluation", ["layerwise", "sampled"])
def test_a_run_on_mini_batches_is_opened_and_predicts(name, evaluation):
    graph = with_edge_features(academic())
    run = small(
        graph, model=name, edge_features=True, sampling={"batch_size": 8, "fan_out": "all", "evaluation": evaluation}
    )
    again = jhgnn.Run.open(run.folder, graph=graph)
    np.testing.assert_array_equal(again.predict(), run.predict())
    np.testing.assert_allclose(run.predict(graph, nodes=[3, 0]), run.predict()[[3, 0]], atol=1e-6)
    without = {relation: dataclasses.replace(own, features=None) for relation, own in graph.edges.items()}
    changed = {
        relation: dataclasses.replace(own, features=None if own.features is None else -own.features)
        for relation, own in graph.edges.items()
    }
    assert np.abs(run.predict(dataclasses.replace(graph, edges=changed)) - run.predict()).max() > 1e-4
    with pytest.raises(jhgnn.InputError, match="features"):
        run.predict(dataclasses.replace(graph, edges=without))
