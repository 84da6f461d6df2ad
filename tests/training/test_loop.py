"""The loop over mini-batches: resume in mid-epoch is exact, nothing compiles late, callbacks; both ways to evaluate."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from jhgnn.config import SamplingConfig
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError
from jhgnn.runtime.console import Say
from jhgnn.runtime.interrupt import StopRequest
from jhgnn.tasks.class_counts import count, scores
from jhgnn.training.checkpoint import CheckpointStore
from jhgnn.training.loop import train
from tests.executions import built, forward, whole
from tests.models.heterographs import academic
from tests.training.minibatches import recipe, sampled


def over_all(config):
    """The recipe over the whole graph."""
    return dataclasses.replace(config, sampling=SamplingConfig())


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compile_cache):
    """Three epochs of three batches, at once."""
    config = recipe(training={"epochs": 3}, sampling={"prefetch_threads": 1})
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, tensorboard=False))
    programs = sampled(academic(), config).compile()
    folder = tmp_path_factory.mktemp("whole")
    return programs, folder, run(programs, folder)


def run(programs, folder, *, resume=False, callbacks=()):
    text = to_toml(programs.execution.config)
    say, stop = Say(quiet=True), StopRequest()
    return train(programs, folder, seed=0, recipe=text, resume=resume, stop=stop, say=say, callbacks=callbacks)


def stopping_after(programs, batches):
    """The same programs, which end after some batches."""
    execution = programs.execution.with_training()
    config = execution.config
    sampling = dataclasses.replace(config.sampling, max_steps=batches)
    execution.problem = dataclasses.replace(execution.problem, config=dataclasses.replace(config, sampling=sampling))
    return type(programs)(execution, programs.steps, programs.evaluations)


def final_state(programs, folder):
    return CheckpointStore(folder / "checkpoints").load(programs.execution.initial_state(0))


@pytest.mark.parametrize("batches", [2, 4])
def test_resuming_in_mid_epoch_is_bitwise_exact(trained, tmp_path, batches):
    programs, undisturbed, _ = trained
    first = run(stopping_after(programs, batches), tmp_path)
    assert (first.stopped_by, first.extra["steps"]) == ("max_steps", batches)
    (name,) = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert name == {2: "epoch-00000000-00000002", 4: "epoch-00000001-00000001"}[batches]
    run(programs, tmp_path, resume=True)
    expected, found = (final_state(programs, folder) for folder in (undisturbed, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, found.state, expected.state)
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (undisturbed, tmp_path)]
    for own, other in zip(*([json.loads(line) for line in each] for each in lines), strict=True):
        assert own | {"step_ms": 0} == other | {"step_ms": 0}


def test_figures_of_the_run(trained):
    programs, folder, outcome = trained
    extra = outcome.extra
    assert extra["compilations_after_warm_up"] == 0
    assert (extra["sampling_side"], extra["overflows"], extra["steps"]) == ("host", 0, 9)
    assert 0 <= extra["padding_waste_slots"] < 1
    assert extra["sampling_wait_share"] >= 0
    assert set(outcome.scores) == {"train", "val", "test"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == programs.execution.config.training.epochs


def test_callbacks_see_every_epoch_and_may_end_the_training(trained, tmp_path):
    programs, _, whole_run = trained
    seen = []

    def watch(result):
        seen.append(result)
        return result.epoch == 2

    outcome = run(programs, tmp_path, callbacks=[watch])
    assert outcome.stopped_by == "callback"
    assert [result.epoch for result in seen] == [1, 2]
    assert set(seen[0].scores) == {"val", "test"}
    assert seen[0].loss > 0
    assert any(result.is_best for result in seen)
    assert outcome.progress.epoch == 2
    assert whole_run.progress.epoch == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgcn", "rgat", "han", "gcn", "gat"])
def test_layerwise_rows_are_the_full_batch_forward_pass(name, monkeypatch):
    monkeypatch.setattr("jhgnn.training.layerwise.CHUNK_ROWS", 16)
    monkeypatch.setattr("jhgnn.training.layerwise.CHUNK_EDGES", 30)
    graph, config = academic(), recipe(name)
    full, params = built(graph, over_all(config))
    expected = forward(full, params).embeddings
    found = sampled(graph, config).rows(params, 0)["paper"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_layerwise_scores_and_predictions_are_the_full_batchs(trained):
    programs, _, outcome = trained
    execution = programs.execution
    full = whole(academic(), over_all(execution.config))
    logits = forward(full, outcome.params).logits
    rows, splits = execution.rows(outcome.params, 0), execution.task.splits
    found = execution.task.scores_of_rows(
        execution.structure, outcome.params, rows, {split: splits[split] for split in ("val", "test")}
    )
    for split in ("val", "test"):
        expected = scores(count(logits, full.resident.task, splits[split]), len(splits[split]))
        assert found[split] == pytest.approx(expected, rel=1e-5)
    predicted = execution.task.predict(execution.structure, outcome.params, rows)
    np.testing.assert_allclose(predicted, jax.nn.softmax(logits), rtol=1e-4, atol=1e-5)


def test_han_predicts_on_drawn_neighbours():
    graph, config = academic(), recipe("han", sampling={"batch_size": 40, "walks": 3, "fan_out": "3"})
    execution = sampled(graph, config)
    params = execution.initial_params(1)
    first, again = (execution.rows(params, 0)["paper"] for _ in range(2))
    assert first.shape == (40, 8)
    np.testing.assert_array_equal(first, again)


def test_what_does_not_fit_is_one_line():
    graph = academic()
    for config, message in (
        (recipe(sampling={"fan_out": "3"}, layers=3), None),
        (recipe(sampling={"fan_out": "3,2,1"}), "has 3 numbers, but rgcn has 2 layers"),
        (recipe("han", sampling={"walks": 5, "fan_out": "3,2"}), "give one number"),
    ):
        if message is None:
            assert sampled(graph, config).plan.num_hops == 3
            continue
        with pytest.raises(InputError, match=message):
            sampled(graph, config)
    config = recipe(sampling={"batch_size": 7})
    with pytest.raises(InputError, match="does not divide over 2 devices"):
        sampled(graph, config, devices=2)
