"""Validation scores after equal numbers of steps, of plain sampling and of each mode of `hot`.

They are over all neighbours, but for HAN's walks, whose metapath graphs are not there.
"""

import dataclasses
import statistics
from typing import Any

import numpy as np

from bench.neutronorch.problems import modes, sampled
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.problem import Problem


def compare(problem: Problem, share: float, *, seeds: int, steps: int) -> list[dict[str, Any]]:
    """For each way: validation micro-F1 after `steps` updates, mean and deviation over seeds.

    Ways that reuse rows have a histogram of staleness as well: `staleness`, how many rows were reused at each age, in
    updates, over all steps and seeds.
    """
    config = problem.config
    sampling = config.sampling
    over_all = sampling if sampling.walks else dataclasses.replace(sampling, evaluation="layerwise")
    measured = dataclasses.replace(problem, config=dataclasses.replace(config, sampling=over_all))
    found: list[dict[str, Any]] = []
    for way in ("plain", *modes(problem)):
        execution = sampled(measured, 0.0) if way == "plain" else sampled(measured, share, mode=way)
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
