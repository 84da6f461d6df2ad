"""Micro and macro F1, as all frameworks are scored."""

import numpy as np
import pytest

from bench.comparison.f1 import f1_scores


def test_f1_of_known_predictions():
    logits = np.array([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    micro, macro = f1_scores(logits, np.array([0, 1, 1]), np.arange(3))
    assert micro == pytest.approx(2 / 3)
    assert macro == pytest.approx(2 / 3)
