"""The recipe's optimizers and schedules."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jhgnn.config import TrainingConfig
from jhgnn.training.optimizer import apply_gradients, clipped, make_optimizer, make_schedule


def test_coupled_adam_is_pytorchs():
    """torch.optim.Adam(lr=0.1, weight_decay=0.5) by its documented formula, two steps."""
    config = dataclasses.replace(TrainingConfig(), learning_rate=0.1, weight_decay=0.5)
    optimizer = make_optimizer(config)
    x, state = jnp.asarray([1.0, -2.0]), None
    state = optimizer.init(x)
    expected, first, second = np.array([1.0, -2.0]), 0.0, 0.0
    for t in (1, 2):
        gradient = np.array([0.3, 0.1])
        updates, state = optimizer.update(jnp.asarray(gradient, jnp.float32), state, x)
        x = x + updates
        decayed = gradient + 0.5 * expected
        first, second = 0.9 * first + 0.1 * decayed, 0.999 * second + 0.001 * decayed**2
        expected = expected - 0.1 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_adams_first_steps_are_those_of_float64():
    """Optax's own bias correction is off by 1.3e-5 in the first, which a ReLU near zero makes visible in the logits."""
    optimizer = make_optimizer(dataclasses.replace(TrainingConfig(), learning_rate=1.0, weight_decay=0.0))
    x = jnp.asarray([0.0, 0.0])
    state, first, second = optimizer.init(x), 0.0, 0.0
    for t in range(1, 31):
        gradient = np.asarray([0.3 + 0.1 * t, 7e-4 * np.cos(t)], np.float32)
        updates, state = optimizer.update(jnp.asarray(gradient), state, x)
        first, second = 0.9 * first + 0.1 * gradient.astype(float), 0.999 * second + 0.001 * gradient.astype(float) ** 2
        expected = -(first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(updates, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_schedule_warms_up_peaks_and_decays(schedule):
    config = dataclasses.replace(TrainingConfig(), schedule=schedule, epochs=100, warmup_epochs=10, learning_rate=0.2)
    rate = make_schedule(config)
    assert 0 < float(rate(0)) < float(rate(5)) < 0.2
    np.testing.assert_allclose(float(rate(10)), 0.2, rtol=1e-6)
    np.testing.assert_allclose(float(rate(100)), 0.2 if schedule == "constant" else 0.0, atol=1e-7)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "lamb"])
def test_every_optimizer_descends_and_clips(name):
    config = dataclasses.replace(
        TrainingConfig(), optimizer=name, gradient_clip=1.0, learning_rate=0.05, weight_decay=0.0
    )
    optimizer = make_optimizer(config)
    x = jnp.asarray([3.0, -4.0])
    state = optimizer.init(x)
    for _ in range(200):
        gradient = 2e6 * x
        gradient = clipped(gradient, optax.tree.norm(gradient), config.gradient_clip)
        updates, state = optimizer.update(gradient, state, x)
        x = x + updates
    assert float(jnp.abs(x).max()) < 1.0


OPTAX = {
    "adam": lambda: optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.05)),
    "adamw": lambda: optax.adamw(0.05, weight_decay=0.1),
    "sgd": lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.05, momentum=0.9)),
    "lamb": lambda: optax.lamb(0.05, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTAX)
def test_an_update_is_optaxs_and_one_that_is_not_valid_changes_nothing(name):
    config = dataclasses.replace(TrainingConfig(), optimizer=name, learning_rate=0.05, weight_decay=0.1)
    optimizer, reference = make_optimizer(config), OPTAX[name]()
    params = {"a": jnp.asarray([3.0, -4.0, 0.0]), "b": jnp.full((2, 2), 0.5)}
    with jax.enable_x64(True):  # Optax's bias corrections are exact in float64
        expected = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), params)
        reference_state = reference.init(expected)
    state = optimizer.init(params)
    update = jax.jit(lambda *given: apply_gradients(optimizer, *given), donate_argnums=(1, 2))
    for step in range(5):
        exact = jax.tree.map(lambda x, step=step: np.sin(3.0 * np.asarray(x) + step), expected)
        gradients = jax.tree.map(lambda gradient: jnp.asarray(gradient, jnp.float32), exact)
        before = jax.tree.map(np.array, (params, state))
        nowhere = jax.tree.map(lambda gradient: gradient + jnp.nan, gradients)
        params, state = update(nowhere, state, params, jnp.asarray(False))
        jax.tree.map(np.testing.assert_array_equal, (params, state), before)
        params, state = update(gradients, state, params, jnp.asarray(True))
        with jax.enable_x64(True):
            wide = jax.tree.map(jnp.asarray, exact)
            updates, reference_state = reference.update(wide, reference_state, expected)
            expected = optax.apply_updates(expected, updates)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), params, expected)


def test_gradients_are_clipped_to_their_norm_and_small_ones_are_not():
    gradients = {"a": jnp.asarray([3.0]), "b": jnp.asarray([[4.0]])}
    norm = optax.tree.norm(gradients)
    expected, _ = optax.clip_by_global_norm(2.0).update(gradients, optax.EmptyState())
    jax.tree.map(np.testing.assert_array_equal, clipped(gradients, norm, 2.0), expected)
    jax.tree.map(np.testing.assert_array_equal, clipped(gradients, norm, 6.0), gradients)
    assert clipped(gradients, norm, 0.0) is gradients
