"""Losses and scores against plain definitions."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.tasks.class_counts import count, mean_loss, scores


def f1_by_hand(wanted: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Micro and macro F1 over boolean `[rows, classes]`, class by class."""
    each, true_all, wrong_all = [], 0, 0
    for label, guess in zip(wanted.T, predicted.T, strict=True):
        true, wrong = int((label & guess).sum()), int((label ^ guess).sum())
        true_all, wrong_all = true_all + true, wrong_all + wrong
        if true or wrong:
            each.append(2 * true / (2 * true + wrong))
    micro = 2 * true_all / (2 * true_all + wrong_all) if true_all or wrong_all else 0.0
    return micro, float(np.mean(each)) if each else 0.0


@given(st.integers(0, 10**6), st.booleans())
def test_scores_are_the_definition(seed, multi_label):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(12, 4)).astype(np.float32)
    ids = np.sort(rng.choice(12, 7, replace=False)).astype(np.int32)
    if multi_label:
        labels = (rng.random((12, 4)) < 0.4).astype(np.uint8)
        wanted, predicted = labels[ids].astype(bool), logits[ids] > 0
        log_likelihood = np.where(wanted, -np.log1p(np.exp(-logits[ids])), -np.log1p(np.exp(logits[ids])))
        loss = -log_likelihood.mean()
    else:
        labels = rng.integers(0, 4, 12).astype(np.int32)
        wanted, predicted = np.eye(4, dtype=bool)[labels[ids]], np.eye(4, dtype=bool)[logits[ids].argmax(axis=1)]
        loss = np.mean(
            [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits[ids], labels[ids], strict=True)]
        )
    found = scores(count(jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(ids)), len(ids))
    micro, macro = f1_by_hand(wanted, predicted)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(found["micro_f1"], micro, rtol=1e-6)
    np.testing.assert_allclose(found["macro_f1"], macro, rtol=1e-6)
    assert found["accuracy"] == (wanted == predicted).all(axis=1).mean()


def test_empty_split_has_zero_loss_and_scores():
    logits, labels, none = jnp.ones((3, 2)), jnp.zeros(3, jnp.int32), jnp.zeros(0, jnp.int32)
    assert float(mean_loss(logits[none], labels[none])) == 0.0
    assert set(scores(count(logits, labels, none), 0).values()) == {0.0}


def test_label_smoothing_mixes_in_the_uniform_target():
    logits, labels = jnp.asarray([[2.0, -1.0, 0.5]]), jnp.asarray([0])
    log_probabilities = np.asarray(logits - np.log(np.exp(logits).sum()))[0]
    target = 0.9 * np.array([1.0, 0, 0]) + 0.1 / 3
    smoothed = mean_loss(logits, labels, 0.1)
    np.testing.assert_allclose(smoothed, -(target * log_probabilities).sum(), rtol=1e-5)
