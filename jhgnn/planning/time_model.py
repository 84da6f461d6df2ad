"""Seconds of a step, predicted from the work of its compiled program: good for ranking programs of one recipe.

The time is a sum over kinds of work, each with a rate. On a CPU all float operations have the same one and nothing
else counts, so that programs are ranked by their operations: rates for each kind, fitted to measured steps, chose worse
for recipes that they were not fitted to (docs/decisions.md). `python -m bench.recompute --fit` measures the rate from
the stored results of that study, and says how far predictions and measurements lie apart. For other platforms the rates
are assumed to be those of an accelerator bound by bandwidth; they were not measured.
"""

import dataclasses

from jhgnn.planning.work import Work

OPERATIONS = ("flops", "dot_flops", "transcendentals", "native_flops")
"""The kinds of work that are float operations, `Work.total_flops`."""

SECONDS: dict[str, dict[str, float]] = {
    "cpu": dict.fromkeys(OPERATIONS, 3.23e-11),
    "accelerator": {
        "num_bytes": 1.0e-12,
        "dot_flops": 2.0e-14,
        "flops": 5.0e-14,
        "transcendentals": 5.0e-13,
        "scattered": 5.0e-12,
        "ops": 5.0e-6,
    },
}
"""Platform -> kind of work -> seconds of one. `temp_bytes` are pages that a call touches for the first time."""

RATIO_ERRORS = {"cpu": 0.41}
"""Platform -> by how much, as a share, the ratio of two policies' predicted times misses the measured one at most, in
nine of ten pairs that a search compares: `ratio_error_of_rates_in_use` of `python -m bench.recompute --fit`. Platforms
whose rates were not measured are absent."""

KINDS = (*(field.name for field in dataclasses.fields(Work)), "temp_bytes")


def predicted_s(work: Work, temp_bytes: int, platform: str) -> float:
    """Seconds of one call."""
    rates = SECONDS.get(platform, SECONDS["accelerator"])
    amounts = dataclasses.asdict(work) | {"temp_bytes": temp_bytes}
    return sum(rate * amounts[kind] for kind, rate in rates.items())
