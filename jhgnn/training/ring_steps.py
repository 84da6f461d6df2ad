"""How many time steps LeapGNN's ring takes (`distributed.time_steps = -1`): its tuner, before training.

From as many steps as places on, one fewer is tried while that makes a batch faster. The published tuner does the same
with epochs while it trains; here a few batches are timed, since each number of steps is a program of its own. Of
several processes the first one's clock decides.

Source: HopGNN (as LeapGNN, arXiv 2409.00657), whose first slower number ends the search as well.
"""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

from jhgnn.training.batch_times import round_s
from jhgnn.training.mesh import DeviceMesh
from jhgnn.training.problem import Problem
from jhgnn.training.sampled import Sampled

TUNED = -1
"""`distributed.time_steps` that are to be tuned."""
BATCHES = 4
ROUNDS = 3


def tuned(problem: Problem) -> Sampled:
    """The execution with the number of time steps that this machine runs fastest."""
    most = DeviceMesh(problem.config.distributed.devices).size
    chosen, seconds = fewest_while_faster(most, lambda steps: _batch_s(Sampled(_with_steps(problem, steps))))
    execution = Sampled(_with_steps(problem, chosen))
    shown = ", ".join(f"{1e3 * each:.1f} ms with {steps}" for steps, each in seconds.items())
    execution.steps_chosen = f"time steps of the ring: {chosen} (tuned); a batch takes {shown}"
    return execution


def fewest_while_faster(most: int, batch_s: Callable[[int], float]) -> tuple[int, dict[int, float]]:
    """The last number of steps, from `most` down to 1, that was faster than the one before; and all that were timed."""
    seconds = {most: batch_s(most)}
    for steps in range(most - 1, 0, -1):
        seconds[steps] = batch_s(steps)
        if seconds[steps] >= seconds[steps + 1]:
            return steps + 1, seconds
    return 1, seconds


def _with_steps(problem: Problem, steps: int) -> Problem:
    distributed = dataclasses.replace(problem.config.distributed, time_steps=steps)
    return dataclasses.replace(problem, config=dataclasses.replace(problem.config, distributed=distributed))


def _batch_s(execution: Sampled) -> float:
    """The fastest of some rounds, by the first process's clock; a round before them warms up."""
    programs = execution.compile()
    seconds = min([round_s(programs, BATCHES) for _ in range(ROUNDS + 1)][1:])
    if jax.process_count() == 1:
        return seconds
    return float(multihost_utils.broadcast_one_to_all(np.float32(seconds)))
