"""The rate of the time model from measured steps, and how well its order of programs chooses."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.recompute_study.budgets import Row, alike, choices, measured, median_s
from jhgnn.planning.time_model import OPERATIONS, SECONDS

Result = Mapping[str, Any]


def cpu_rows(result: Result) -> list[Row]:
    """The rows of a case's part `cpu`; none where it was not measured."""
    return list(result["parts"].get("cpu", {}).get("rows", ()))


def rates_of(results: Sequence[Result]) -> dict[str, float]:
    """Seconds of one float operation, of whatever kind: the median of the cases' medians; nothing without cases."""
    medians = []
    for result in results:
        programs = {row["program"]: row for row in measured(cpu_rows(result))}
        operations = [(row, sum(row["work"][kind] for kind in OPERATIONS)) for row in programs.values()]
        seconds = [median_s(row) / count for row, count in operations if count]
        if seconds:
            medians.append(statistics.median(seconds))
    return dict.fromkeys(OPERATIONS, float(f"{statistics.median(medians):.3g}")) if medians else {}


def predicted_with(rates: Mapping[str, float], row: Row) -> float:
    """Seconds of a step by those rates."""
    amounts = row["work"] | {"temp_bytes": row["temp_bytes"]}
    return float(sum(rate * amounts[kind] for kind, rate in rates.items()))


def fit(results: Sequence[Result]) -> dict[str, Any]:
    """Rates from all cases, and how far predictions and measurements lie apart, as factors."""
    rates = rates_of(results)
    factors = [
        np.exp(abs(np.log(max(predicted_with(rates, row), 1e-9) / median_s(row))))
        for result in results
        for row in measured(cpu_rows(result))
    ]
    return {
        "seconds": rates,
        "programs": len(factors),
        "median_factor": float(np.median(factors)) if factors else None,
        "largest_factor": float(max(factors)) if factors else None,
        "ratio_error": ratio_error(results, rates),
        "ratio_error_of_rates_in_use": ratio_error(results, SECONDS["cpu"]),
    }


def ratio_error(results: Sequence[Result], rates: Mapping[str, float]) -> float | None:
    """By how much predicted ratios of two policies' times miss the measured ones, in nine of ten pairs of programs.

    A pair has one implementation, number type and number of micro-batches: what a search compares.
    """
    missed = []
    for result in results:
        for group in alike(measured(cpu_rows(result)), "implementation", "dtype", "micro_batches"):
            programs = list({row["program"]: row for row in group}.values())
            for one, other in itertools.combinations(programs, 2):
                predicted = predicted_with(rates, one) / max(predicted_with(rates, other), 1e-12)
                missed.append(abs(np.log(max(predicted, 1e-12) * median_s(other) / median_s(one))))
    return float(np.expm1(np.quantile(missed, 0.9))) if missed else None


def searched(results: Sequence[Result]) -> dict[str, list[Row]]:
    """Case -> its budgets, and what a search chooses for them; the order of programs depends on no measurement."""
    return {
        result["case"]: choices(cpu_rows(result), lambda row: predicted_with(SECONDS["cpu"], row))
        for result in results
        if measured(cpu_rows(result))
    }
