"""Class weights: loss and gradient against float64, in full batches and mini-batches, and how recipes write them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.class_weights import class_weights_text
from jhgnn.config.recipe import load_recipe, override, to_toml
from jhgnn.errors import InputError
from jhgnn.tasks.class_counts import losses
from jhgnn.tasks.class_weights import class_weights
from jhgnn.training.loop import EpochResult
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, small

pytestmark = pytest.mark.usefixtures("compile_cache")


def reference(logits: np.ndarray, labels: np.ndarray, smoothing: float, weights: np.ndarray) -> np.ndarray:
    """In float64, term by term."""
    logits, num_classes = logits.astype(np.float64), logits.shape[1]
    if labels.ndim == 1:
        log_odds = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        targets = np.eye(num_classes)[labels] * (1 - smoothing) + smoothing / num_classes
        return -(targets * log_odds).sum(axis=1) * weights[labels]
    targets = labels * (1 - smoothing) + smoothing / 2
    having, not_having = -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits))
    return -(weights * targets * having + (1 - targets) * not_having).mean(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weighed_losses_and_their_gradients_are_those_of_float64(several, smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(11, 4)).astype(np.float32)
    labels = rng.integers(0, 2, (11, 4)).astype(np.uint8) if several else rng.integers(0, 4, 11).astype(np.int32)
    weights = np.array([0.5, 1.0, 3.0, 7.0])
    found = losses(jnp.asarray(logits), jnp.asarray(labels), smoothing, weights)
    np.testing.assert_allclose(found, reference(logits, labels, smoothing, weights), rtol=2e-5)
    gradient = jax.grad(lambda x: losses(x, jnp.asarray(labels), smoothing, weights).sum())(jnp.asarray(logits))
    step, wanted = 1e-6, np.zeros(logits.shape)
    for place in np.ndindex(*logits.shape):
        ends = [logits.astype(np.float64), logits.astype(np.float64)]
        for end, sign in zip(ends, (1, -1), strict=True):
            end[place] += sign * step
        wanted[place] = np.subtract(*(reference(end, labels, smoothing, weights).sum() for end in ends)) / (2 * step)
    np.testing.assert_allclose(gradient, wanted, atol=2e-5)
    ones = losses(jnp.asarray(logits), jnp.asarray(labels), smoothing, np.ones(4))
    np.testing.assert_allclose(ones, losses(jnp.asarray(logits), jnp.asarray(labels), smoothing), rtol=1e-6)


def rare(several: bool = False):
    """Of 20 training papers, 2 are of class 2."""
    graph = academic(multi_label=several)
    if several:
        return graph
    labels = np.arange(40, dtype=np.int32) % 2
    labels[graph.splits["train"][:2]] = 2
    return dataclasses.replace(graph, labels=labels, class_names=("a, b", "c=d", "e"))


def test_balanced_classes_count_alike():
    graph = rare()
    weights = class_weights("balanced", graph)
    labels = graph.labels[graph.splits["train"]]
    counts = np.bincount(labels, minlength=3)
    np.testing.assert_allclose(weights * counts, 20 / 3)
    assert weights[labels].mean() == pytest.approx(1)
    graph = rare(several=True)
    weights, own = class_weights("balanced", graph), graph.labels[graph.splits["train"]]
    np.testing.assert_allclose(weights * own.sum(axis=0), (1 - own).sum(axis=0))


def test_balanced_weights_of_classes_that_do_not_occur_are_one():
    graph = dataclasses.replace(academic(), labels=np.zeros(40, np.int32))
    assert class_weights("balanced", graph).tolist() == [1, 1, 1]
    every = dataclasses.replace(rare(several=True), labels=np.tile(np.array([[1, 0, 1]], np.uint8), (40, 1)))
    assert class_weights("balanced", every).tolist() == [1, 1, 1]


def test_named_weights_are_by_name_or_number():
    text = class_weights_text({"e": 4, "a, b": 0.5}, "weights")
    assert class_weights(text, rare()).tolist() == [0.5, 1, 4]
    assert class_weights(class_weights_text("2=3,0=1.5", "weights"), academic()).tolist() == [1.5, 1, 3]
    assert class_weights("", academic()) is None
    with pytest.raises(InputError, match=r"'f' is no class of 'paper'; known: a, b, c=d, e"):
        class_weights(class_weights_text({"f": 1}, "weights"), rare())


def test_a_recipe_keeps_its_weights(tmp_path):
    for value in ("balanced", {"a, b": 2, "e": 0.25}, "x=3", "", {}):
        config = override(Config(), {"training": {"class_weights": value}}, where="here")
        (tmp_path / "recipe.toml").write_text(to_toml(config))
        assert load_recipe(tmp_path / "recipe.toml") == config
    recipe = tmp_path / "table.toml"
    recipe.write_text("[training.class_weights]\nrare = 5\n")
    assert load_recipe(recipe).training.class_weights == '{"rare": 5.0}'


@pytest.mark.parametrize(
    "value", ["balance", "a", "a=", "=2", "a=-1", {"a": 0}, {"a": "2"}, {"a": float("inf")}, 3, "{"]
)
def test_what_is_no_weight_is_refused(value):
    with pytest.raises(InputError, match=r"training\.class_weights"):
        override(Config(), {"training": {"class_weights": value}}, where="training")


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_training_loss_is_weighed_full_batch_and_in_mini_batches(several):
    """A first epoch with a learning rate of next to nothing tells the loss of the initial parameters."""
    graph, told = rare(several), []

    def tell(result: EpochResult) -> None:
        told.append(result.loss)

    still = {"learning_rate": 1e-12, "epochs": 1, "callbacks": [tell], "weight_decay": 0.0}
    settings = still | {"model": "rgcn", "class_weights": "balanced"}
    run = small(graph, **settings)
    batches = IN_BATCHES | {"fan_out": "all", "batch_size": 10}
    small(graph, **settings, sampling=batches)
    odds = run.predict()[graph.splits["train"]].astype(np.float64)
    logits = np.log(odds) - np.log1p(-odds) if several else np.log(odds)
    weights = class_weights("balanced", graph)
    wanted = reference(logits, graph.labels[graph.splits["train"]], 0.0, weights).mean()
    np.testing.assert_allclose(told, wanted, rtol=1e-4)
    plain = reference(logits, graph.labels[graph.splits["train"]], 0.0, np.ones(3)).mean()
    assert abs(plain - wanted) > 1e-3
