"""Rates of the time model from measured steps: non-negative least squares of relative errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from bench.recompute_study.budgets import measured, step_s
from jhgnn.planning.time_model import KINDS


def fit(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of each kind of work, and how far predictions and measurements lie apart, as factors."""
    rows, times = [], []
    for each in results:
        seen = set()
        for cell in measured(each["cells"]):
            if cell["program"] not in seen:
                seen.add(cell["program"])
                amounts = cell["work"] | {"temp_bytes": cell["temp_bytes"]}
                rows.append([amounts[kind] for kind in KINDS])
                times.append(step_s(cell))
    matrix, seconds = np.array(rows), np.array(times)
    scale = np.maximum(matrix.max(axis=0), 1.0)  # so that kinds of unlike size weigh alike
    rates = nnls(matrix / seconds[:, None] / scale, np.ones(len(seconds)))[0] / scale
    factors = np.exp(np.abs(np.log(np.maximum(matrix @ rates, 1e-9) / seconds)))
    return {
        "seconds": {kind: float(f"{rate:.3g}") for kind, rate in zip(KINDS, rates, strict=True) if rate > 0},
        "programs": len(seconds),
        "median_factor": float(np.median(factors)),
        "largest_factor": float(factors.max()),
    }
