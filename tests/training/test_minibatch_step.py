"""The compiled update: one collective, the same on two devices as on one, on either side, and as the full batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jhgnn.training.lazy_rows import TouchedRows, gather, merge_devices, scatter, tables_of
from jhgnn.training.objective import mean_loss
from jhgnn.training.state import init_params
from jhgnn.training.step import dropout_seed
from tests.models.heterographs import academic
from tests.models.test_models import built, forward
from tests.training.minibatches import compiled, recipe, steps

TOLERANCE = {"rtol": 0, "atol": 1e-6}  # float32 sums in another order, after 20 updates


@pytest.fixture(scope="module")
def one_device():
    config = recipe()
    problem, programs = compiled(academic(), config)
    return config, problem, programs, steps(problem, programs, config, 20)


def test_two_devices_give_the_parameters_of_one_with_one_all_reduce(one_device):
    config, _, _, (expected, reports) = one_device
    problem, programs = compiled(academic(), config, devices=2)
    found, reports_of_two = steps(problem, programs, config, 20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), found.params, expected.params)
    np.testing.assert_allclose([r.loss for r in reports_of_two], [r.loss for r in reports], rtol=1e-5)
    hlo = programs.step.call.as_text()
    assert sum(" all-reduce(" in line or " all-reduce-start(" in line for line in hlo.splitlines()) == 1


def test_the_device_sampler_gives_the_parameters_of_the_host_sampler(one_device):
    _, _, _, (expected, _) = one_device
    config = recipe(sampling={"side": "device"})
    problem, programs = compiled(academic(), config)
    assert problem.features_on_device[0]
    found, _ = steps(problem, programs, config, 20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), found.params, expected.params)


def test_the_last_batch_is_divided_by_its_own_targets_and_epochs_go_on(one_device):
    reports = one_device[3][1]
    assert [int(report.num_targets) for report in reports[:6]] == [8, 8, 4, 8, 8, 4]
    assert all(bool(report.finite) and not bool(report.overflowed) for report in reports)


def test_a_batch_of_all_with_all_neighbours_is_the_full_batch_step():
    graph, config = academic(), recipe(sampling={"batch_size": 24, "fan_out": "all"})
    problem, programs = compiled(graph, config)
    state, (report,) = steps(problem, programs, config, 1)
    full, _ = built(graph, config)
    before = state._replace(step=state.step - 1)
    params = init_params(config.model, full.spec, 1)
    output = forward(full, config, params, dropout_seed(before))
    expected = mean_loss(output.logits[full.splits["train"]], full.labels[full.splits["train"]])
    np.testing.assert_allclose(report.loss, expected, rtol=1e-5)
    assert int(report.num_targets) == 20


def test_untouched_rows_keep_values_and_moments(one_device):
    config, problem, programs, _ = one_device
    graph = academic()
    initial = init_params(config.model, problem.spec, 1)
    state, _ = steps(problem, programs, config, 1)
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


def test_lazy_updates_are_the_optimizers_own_on_the_touched_rows():
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=3), "embeddings": {"tables": {"a": rng.normal(size=(6, 2))}}}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    optimizer = optax.adamw(0.1, weight_decay=0.1)
    state = optimizer.init(params)
    ids = {"a": np.array([4, -1, 1], np.int32)}
    row_gradients = np.array([[1, 2], [0, 0], [3, 4]], np.float32)
    gradients = {"w": np.ones(3, np.float32), "embeddings": {"tables": {"a": row_gradients}}}
    dense = np.zeros((6, 2), np.float32)
    dense[[4, 1]] = row_gradients[[0, 2]]
    dense_gradients = gradients | {"embeddings": {"tables": {"a": dense}}}
    expected, expected_state = params, state
    for _ in range(2):
        updates, expected_state = optimizer.update(dense_gradients, expected_state, expected)
        expected = optax.apply_updates(expected, updates)
        rows = gather(params, ids), gather(state, ids)
        updates, new_state = optimizer.update(gradients, rows[1], rows[0])
        params = scatter(params, optax.apply_updates(rows[0], updates), ids)
        old_table = tables_of(params)["a"]
        state = scatter(state, new_state, ids)
    table, dense_table = tables_of(params)["a"], tables_of(expected)["a"]
    np.testing.assert_allclose(table[np.array([1, 4])], dense_table[np.array([1, 4])], rtol=1e-6)
    np.testing.assert_array_equal(old_table, table)
    untouched = np.array([0, 2, 3, 5])
    assert (np.asarray(dense_table)[untouched] != np.asarray(table)[untouched]).any()  # decayed there, lazily not here
    np.testing.assert_allclose(params["w"], expected["w"], rtol=1e-6)


def test_rows_that_several_devices_touch_are_summed_once():
    ids = np.array([[3, 1, -1], [1, 5, 3]], np.int32)
    gradients = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    gradients[0, 2] = 0

    def merge(ids, gradients):
        return merge_devices({"a": TouchedRows(ids, gradients)}, {"a": 6}, "d", after=jnp.float32(1))["a"]

    merged = jax.vmap(merge, axis_name="d")(ids, gradients)
    dense = np.zeros((6, 2), np.float32)
    np.add.at(dense, ids[ids >= 0], gradients[ids >= 0])
    for device in range(2):
        own, rows = np.asarray(merged.ids[device]), np.asarray(merged.gradients[device])
        assert sorted(own[own >= 0].tolist()) == [1, 3, 5]
        np.testing.assert_array_equal(rows[own >= 0], dense[own[own >= 0]])
        assert not rows[own < 0].any()


@pytest.mark.slow
def test_a_batch_that_overflows_on_the_device_changes_nothing_and_says_so():
    config = recipe(sampling={"side": "device"})
    problem, programs = compiled(academic(), config, slots={"paper": 9, "author": 2})
    state, (report,) = steps(problem, programs, config, 1)
    assert bool(report.overflowed)
    assert int(state.step) == 0
    initial = init_params(config.model, problem.spec, 1)
    jax.tree.map(np.testing.assert_array_equal, state.params, jax.tree.map(np.asarray, initial))
