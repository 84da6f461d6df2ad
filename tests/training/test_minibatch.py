"""The mini-batch loop: resume in mid-epoch is exact, nothing compiles late, and both ways to evaluate."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.recipe import to_toml
from jhgnn.training.checkpoint import CheckpointStore
from jhgnn.training.interrupt import StopRequest
from jhgnn.training.layerwise import layerwise_embeddings, layerwise_scores
from jhgnn.training.minibatch import train_minibatches
from jhgnn.training.minibatch_predict import predict_minibatches
from jhgnn.training.minibatch_problem import plan_minibatches
from jhgnn.training.minibatch_programs import compile_minibatches
from jhgnn.training.objective import count, scores
from jhgnn.training.reporting import Say
from jhgnn.training.state import init_params
from tests.models.heterographs import academic
from tests.models.test_models import built, forward
from tests.training.minibatches import recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compile_cache):
    """Three epochs of three batches, at once."""
    config = recipe(training={"epochs": 3}, sampling={"prefetch_threads": 1})
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, tensorboard=False))
    config = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=1))
    problem = plan_minibatches(academic(), config)
    programs = compile_minibatches(problem, config)
    folder = tmp_path_factory.mktemp("whole")
    return config, problem, programs, folder, run(problem, programs, config, folder)


def run(problem, programs, config, folder, *, resume=False):
    say = Say(quiet=True)
    text = to_toml(config)
    return train_minibatches(problem, programs, config, folder, recipe=text, resume=resume, stop=StopRequest(), say=say)


def final_state(problem, programs, config, folder):
    from jhgnn.training.optimizer import make_optimizer
    from jhgnn.training.state import init_state

    like = init_state(init_params(config.model, problem.spec, 0), make_optimizer(config.training, 3), 0)
    return CheckpointStore(folder / "checkpoints").load(like)


@pytest.mark.parametrize("batches", [2, 4])
def test_resuming_in_mid_epoch_is_bitwise_exact(trained, tmp_path, batches):
    config, problem, programs, whole, _ = trained
    part = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, max_steps=batches))
    first = run(problem, programs, part, tmp_path)
    assert (first.stopped_by, first.extra["steps"]) == ("max_steps", batches)
    (name,) = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert name == {2: "epoch-00000000-00000002", 4: "epoch-00000001-00000001"}[batches]
    run(problem, programs, config, tmp_path, resume=True)
    expected, found = (final_state(problem, programs, config, folder) for folder in (whole, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, found.state, expected.state)
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (whole, tmp_path)]
    for own, other in zip(*([json.loads(line) for line in each] for each in lines), strict=True):
        assert own | {"step_ms": 0} == other | {"step_ms": 0}


def test_figures_of_the_run(trained):
    config, _, _, folder, outcome = trained
    extra = outcome.extra
    assert extra["compilations_after_warm_up"] == 0
    assert (extra["sampling_side"], extra["overflows"], extra["steps"]) == ("host", 0, 9)
    assert 0 <= extra["padding_waste_slots"] < 1
    assert extra["sampling_wait_share"] >= 0
    assert set(outcome.scores) == {"train", "val", "test"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == config.training.epochs


@pytest.mark.parametrize("name", ["rgcn", "rgat", "han"])
def test_layerwise_inference_is_the_full_batch_forward_pass(name, monkeypatch):
    monkeypatch.setattr("jhgnn.training.layerwise.CHUNK_ROWS", 16)
    monkeypatch.setattr("jhgnn.training.layerwise.CHUNK_EDGES", 30)
    graph, config = academic(), recipe(name)
    full, params = built(graph, config)
    problem = plan_minibatches(graph, config)
    expected = forward(full, config, params).embeddings
    found = layerwise_embeddings(problem, config, params)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_layerwise_scores_and_predictions_are_the_full_batchs(trained):
    config, problem, programs, _, outcome = trained
    full, _ = built(academic(), config)
    logits = forward(full, config, outcome.params).logits
    found = layerwise_scores(problem, programs, config, outcome.params, ("val", "test"))
    for split in ("val", "test"):
        expected = scores(count(logits, full.labels, full.splits[split]), full.split_size(split))
        assert found[split] == pytest.approx(expected, rel=1e-5)
    predicted = predict_minibatches(problem, config, outcome.params)
    np.testing.assert_allclose(predicted.logits, logits, rtol=1e-4, atol=1e-5)


def test_han_predicts_on_drawn_neighbours():
    graph, config = academic(), recipe("han", sampling={"batch_size": 40, "walks": 3, "fan_out": "3"})
    problem = plan_minibatches(graph, config)
    params = init_params(config.model, problem.spec, 1)
    first, again = (predict_minibatches(problem, config, params) for _ in range(2))
    assert first.logits.shape == (40, 3)
    np.testing.assert_array_equal(first.logits, again.logits)


def test_han_predicts_over_all_neighbours_of_built_metapaths():
    graph, config = academic(), recipe("han", sampling={"batch_size": 8})
    full, params = built(graph, config)
    expected = forward(full, config, params)
    found = predict_minibatches(plan_minibatches(graph, config), config, params)
    np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.embeddings, expected.embeddings, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_one_line():
    graph = academic()
    for config, message in (
        (recipe(sampling={"fan_out": "3"}, layers=3), None),
        (recipe(sampling={"fan_out": "3,2,1"}), "has 3 numbers, but rgcn has 2 layers"),
        (recipe("han", sampling={"walks": 5, "fan_out": "3,2"}), "give one number"),
    ):
        if message is None:
            assert plan_minibatches(graph, config).plan.num_hops == 3
            continue
        with pytest.raises(InputError, match=message):
            plan_minibatches(graph, config)
    config = recipe(sampling={"batch_size": 7})
    problem = plan_minibatches(graph, config)
    with pytest.raises(InputError, match="does not divide over 2 devices"):
        compile_minibatches(problem, config)
