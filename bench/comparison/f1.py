"""Micro and macro F1 of predictions, by one definition for every framework."""

import numpy as np


def f1_scores(logits: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> tuple[float, float]:
    """(micro, macro) over the rows `ids`; macro over the classes that occur among labels or predictions."""
    rows, wanted = logits[ids], labels[ids]
    if labels.ndim == 2:
        predicted, truth = rows > 0, wanted.astype(bool)
    else:
        classes = np.arange(rows.shape[1])
        predicted, truth = rows.argmax(1)[:, None] == classes, wanted[:, None] == classes
    hits = (predicted & truth).sum(0)
    sizes = predicted.sum(0) + truth.sum(0)
    present = sizes > 0
    micro = 2.0 * hits.sum() / max(1, sizes.sum())
    return float(micro), float((2.0 * hits[present] / sizes[present]).mean()) if present.any() else 0.0
