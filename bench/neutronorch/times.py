"""Targets a second of plain sampling and of hot vertices, in paired rounds, and the first layer's share of a step."""

import tempfile
from pathlib import Path
from typing import Any

from bench.neutronorch.problems import sampled, with_share
from bench.paired_rounds import paired_rounds
from jhgnn.profiling.capture import capture
from jhgnn.profiling.stages import analyse
from jhgnn.training.problem import Problem


def paired(problem: Problem, shares: list[float], *, rounds: int, steps: int) -> list[dict[str, Any]]:
    """For each share: medians over rounds of targets a second and of their ratio to plain sampling's of the round."""
    ways = {str(share): sampled(problem, share).compile() for share in [0.0, *shares]}
    found = paired_rounds(ways, rounds=rounds, steps=steps)
    named = {"times_first": "over_plain", "times_first_by_round": "over_plain_by_round", "cpu_of_first": "cpu_of_plain"}
    return [
        {"share": float(share), **{named.get(name, name): value for name, value in row.items()}}
        for share, row in found.items()
    ]


def first_layer(problem: Problem, shares: list[float]) -> list[dict[str, Any]]:
    """For each share: what part of a traced step's op time belongs to the first layer."""
    found = []
    for share in [0.0, *shares]:
        with tempfile.TemporaryDirectory() as folder:
            capture(with_share(problem.config, share), Path(folder), progress=False)
            profile = analyse(Path(folder))
        total = sum(row["seconds"] for row in profile["stages"])
        first = sum(row["seconds"] for row in profile["parts"] if row["layer"] == 0)
        found.append({"share": share, "first_layer": first / total, "op_ms": 1e3 * total})
    return found
