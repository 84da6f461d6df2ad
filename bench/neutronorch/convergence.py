"""Validation scores after equal numbers of steps, over all neighbours: plain sampling and each mode of `hot`."""

import dataclasses
import statistics
from typing import Any

import numpy as np

from bench.neutronorch.problems import sampled
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.problem import Problem


def compare(problem: Problem, share: float, *, seeds: int, steps: int) -> list[dict[str, Any]]:
    """For each way: validation micro-F1 after `steps` updates, mean and deviation over seeds.

    Ways that reuse rows have a histogram of staleness as well: `staleness`, how many rows were reused at each age, in
    updates, over all steps and seeds.
    """
    config = problem.config
    layerwise = dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, evaluation="layerwise"))
    found: list[dict[str, Any]] = []
    for way in ("plain", "exact", "stale", "literal"):
        mode = "exact" if way == "plain" else way
        execution = sampled(dataclasses.replace(problem, config=layerwise), 0.0 if way == "plain" else share, mode=mode)
        programs = execution.compile()  # for all seeds, as in training with `--seeds`
        scores, ages = [], np.zeros(2 * config.sampling.super_batch, np.int64)
        for seed in range(seeds):
            state = programs.place(execution.initial_state(seed))
            feed = programs.feed(seed).iterate(Cursor())
            for _ in range(steps):
                batch = next(feed)
                if programs.super_batches is not None:
                    programs.super_batches.kept(state, batch)
                    ages += np.bincount(programs.super_batches.ages(state, batch.arguments[0]), minlength=len(ages))
                state, _ = programs.update(state, batch)
            feed.close()
            scores.append(float(programs.evaluate(state.params, ["val"], seed)["val"]["micro_f1"]))
        deviation = statistics.stdev(scores) if seeds > 1 else 0.0
        score = {"val_micro_f1": statistics.fmean(scores), "std": deviation}
        found.append({"way": way} | score | {"by_seed": scores, "staleness": ages.tolist()})
    return found
