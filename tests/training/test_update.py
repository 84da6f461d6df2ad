"""The compiled update: one collective, the same on two devices as on one, on either side, and as the full batch."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn.config import SamplingConfig
from jhgnn.nn.embeddings import tables_of
from jhgnn.tasks.class_counts import mean_loss
from jhgnn.training.state import dropout_seed
from tests.executions import forward, whole
from tests.models.heterographs import academic
from tests.training.minibatches import compiled, recipe, steps

TOLERANCE = {"rtol": 0, "atol": 1e-6}  # float32 sums in another order, after 20 updates


@pytest.fixture(scope="module")
def one_device():
    config = recipe()
    programs = compiled(academic(), config)
    return config, programs, steps(programs, 20)


@pytest.mark.slow
def test_two_devices_give_the_parameters_of_one_with_one_all_reduce(one_device):
    config, _, (expected, reports) = one_device
    programs = compiled(academic(), config, devices=2)
    found, reports_of_two = steps(programs, 20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), found.params, expected.params)
    np.testing.assert_allclose([r.loss for r in reports_of_two], [r.loss for r in reports], rtol=1e-5)
    hlo = programs.step.call.as_text()
    assert sum(" all-reduce(" in line or " all-reduce-start(" in line for line in hlo.splitlines()) == 1


@pytest.mark.slow
def test_the_device_sampler_gives_the_parameters_of_the_host_sampler(one_device):
    _, _, (expected, _) = one_device
    programs = compiled(academic(), recipe(sampling={"side": "device"}))
    assert programs.execution.sampling.features_on_device[0]
    found, _ = steps(programs, 20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), found.params, expected.params)


def test_the_last_batch_is_divided_by_its_own_targets_and_epochs_go_on(one_device):
    reports = one_device[2][1]
    assert [int(report.num_examples) for report in reports[:6]] == [8, 8, 4, 8, 8, 4]
    assert all(bool(report.finite) and not bool(report.overflowed) for report in reports)


@pytest.mark.slow
def test_a_batch_of_all_with_all_neighbours_is_the_full_batch_step():
    graph, config = academic(), recipe(sampling={"batch_size": 24, "fan_out": "all"})
    state, (report,) = steps(compiled(graph, config), 1)
    full = whole(graph, dataclasses.replace(config, sampling=SamplingConfig()))
    before = state._replace(step=state.step - 1)
    output = forward(full, full.initial_params(1), dropout_seed(before))
    train = full.task.splits["train"]
    expected = mean_loss(output.logits[train], full.resident.task[train])
    np.testing.assert_allclose(report.loss, expected, rtol=1e-5)
    assert int(report.num_examples) == 20


def test_untouched_rows_keep_values_and_moments(one_device):
    _, programs, _ = one_device
    graph = academic()
    initial = programs.execution.initial_params(1)
    state, _ = steps(programs, 1)
    changed = (np.asarray(tables_of(initial)["subject"]) != tables_of(state.params)["subject"]).any(axis=1)
    order = np.asarray(graph.splits["train"])
    assert changed.any()
    assert len(order) == 20
    moments = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state)
        if "'tables'" in jax.tree_util.keystr(path)
    ]
    assert len(moments) == 2
    for moment in moments:
        assert not moment[~changed].any()


@pytest.mark.slow
def test_a_batch_that_overflows_on_the_device_changes_nothing_and_says_so():
    config = recipe(sampling={"side": "device"})
    programs = compiled(academic(), config, slots={"paper": 9, "author": 2})
    state, (report,) = steps(programs, 1)
    assert bool(report.overflowed)
    assert int(state.step) == 0
    initial = programs.execution.initial_params(1)
    jax.tree.map(np.testing.assert_array_equal, state.params, jax.tree.map(np.asarray, initial))
