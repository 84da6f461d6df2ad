"""The loss, and the counts from which accuracy and F1 follow."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jhgnn.nn.stage import stage

Loss = Callable[[jax.Array, jax.Array], jax.Array]
"""From logits `[rows, num_classes]` and labels, `[rows]` or `[rows, num_classes]`, to a loss of each row, `[rows]`."""
Metric = Callable[[np.ndarray, np.ndarray], float]
"""From the logits and labels of a whole split to a figure, of which more is better; on the host."""


class SplitCounts(NamedTuple):
    """Counts of one split: the mean loss, true and false positives and false negatives by class, and correct rows."""

    loss: jax.Array  # scalar
    true_positives: jax.Array  # [num_classes]
    false_positives: jax.Array
    false_negatives: jax.Array
    correct: jax.Array  # scalar: rows with every label right


def mean_loss(logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0) -> jax.Array:
    """Mean of `losses` over all rows; 0 without any."""
    with stage("LC", part="loss"):
        return losses(logits, labels, label_smoothing).mean() if logits.shape[0] else jnp.zeros(())


def losses(
    logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0, weights: np.ndarray | None = None
) -> jax.Array:
    """The loss of each row, `[rows]`: softmax cross entropy for labels `[rows]`, else the mean binary cross entropy.

    `weights` `[num_classes]`: each row's loss is multiplied by the weight of its class; of several classes a row, the
    part of each class that it has. What a row without a class (-1) gets is of no matter.
    """
    if labels.ndim == 1:
        # As optax.softmax_cross_entropy of smoothed one-hot labels, without arrays of their size.
        right = labels[:, None] == jnp.arange(logits.shape[1])[None, :]
        wanted = (1.0 - label_smoothing) * jnp.sum(logits, axis=1, where=right)
        each = jax.nn.logsumexp(logits, axis=1) - wanted - label_smoothing * logits.mean(axis=1)
        if weights is None:
            return each
        return each * jnp.asarray(weights, logits.dtype).at[jnp.maximum(labels, 0)].get(mode="promise_in_bounds")
    targets = labels.astype(logits.dtype) * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if weights is None:
        return optax.sigmoid_binary_cross_entropy(logits, targets).mean(axis=1)
    own = jnp.asarray(weights, logits.dtype)[None, :]
    return (own * targets * jax.nn.softplus(-logits) + (1.0 - targets) * jax.nn.softplus(logits)).mean(axis=1)


def predict(logits: jax.Array, multi_label: bool) -> jax.Array:
    """Zeros and ones `[num_targets, num_classes]`: the most likely class, or every class above one half."""
    if multi_label:
        return logits > 0.0
    return jax.nn.one_hot(jnp.argmax(logits, axis=1), logits.shape[1], dtype=bool)


def count(logits: jax.Array, labels: jax.Array, ids: jax.Array) -> SplitCounts:
    """The counts of one split."""
    multi_label = labels.ndim == 2
    predicted = predict(logits[ids], multi_label)
    wanted = labels[ids].astype(bool) if multi_label else jax.nn.one_hot(labels[ids], logits.shape[1], dtype=bool)
    return SplitCounts(
        mean_loss(logits[ids], labels[ids]),
        (predicted & wanted).sum(axis=0),
        (predicted & ~wanted).sum(axis=0),
        (~predicted & wanted).sum(axis=0),
        (predicted == wanted).all(axis=1).sum(),
    )


def count_batch(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> SplitCounts:
    """The counts of a mini-batch's rows, `[rows]` each, where `mask` is true; the loss is their sum, not their mean."""
    multi_label = labels.ndim == 2
    predicted = predict(logits, multi_label)
    wanted = labels.astype(bool) if multi_label else jax.nn.one_hot(labels, logits.shape[1], dtype=bool)
    rows = mask[:, None]
    return SplitCounts(
        jnp.where(mask, losses(logits, labels), 0.0).sum(),
        (predicted & wanted & rows).sum(axis=0),
        (predicted & ~wanted & rows).sum(axis=0),
        (~predicted & wanted & rows).sum(axis=0),
        ((predicted == wanted).all(axis=1) & mask).sum(),
    )


def scores(counts: SplitCounts, num_rows: int) -> dict[str, float]:
    """`loss`, `accuracy` (every label of a row right), `micro_f1` and `macro_f1` of one split.

    Macro F1 averages over the classes that occur among labels or predictions, as scikit-learn does; all are 0 for an
    empty split.
    """
    true, false, missed = (np.asarray(array, np.float64) for array in counts[1:4])
    denominators = 2 * true + false + missed
    present = denominators > 0
    f1 = 2 * true[present] / denominators[present]
    return {
        "loss": float(counts.loss),
        "accuracy": float(counts.correct) / max(1, num_rows),
        "micro_f1": float(2 * true.sum() / max(1.0, denominators.sum())),
        "macro_f1": float(f1.mean()) if len(f1) else 0.0,
    }
