"""Validation scores after equal numbers of steps, over all neighbours: plain sampling, exact and literal."""

import dataclasses
import statistics
from typing import Any

from bench.neutronorch.problems import sampled
from bench.stepper import Stepper
from jhgnn.training.problem import Problem


def compare(problem: Problem, share: float, *, seeds: int, steps: int) -> list[dict[str, Any]]:
    """For each way: validation micro-F1 after `steps` updates, mean and deviation over seeds."""
    config = problem.config
    layerwise = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, evaluation="layerwise"))
    found = []
    for way in ("plain", "exact", "literal"):
        scores = []
        for seed in range(seeds):
            own = dataclasses.replace(layerwise, run=dataclasses.replace(layerwise.run, seed=seed))
            execution = sampled(
                dataclasses.replace(problem, config=own), 0.0 if way == "plain" else share, literal=way == "literal"
            )
            stepper = Stepper.begin(execution.compile())
            for _ in range(steps):
                stepper.step()
            stepper.close()
            scores.append(float(stepper.programs.evaluate(stepper.state.params, ["val"], seed)["val"]["micro_f1"]))
        deviation = statistics.stdev(scores) if seeds > 1 else 0.0
        found.append({"way": way, "val_micro_f1": statistics.fmean(scores), "std": deviation})
    return found
