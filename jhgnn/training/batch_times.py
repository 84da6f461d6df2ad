"""Seconds of a program's first batches, by which settings are chosen before training."""

import time

import jax

from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Programs


def round_s(programs: Programs, batches: int) -> float:
    """Seconds of a batch, sampled, gathered and trained on from the first state: the mean of so many, or an epoch's."""
    steps, seed = programs.execution.steps_per_epoch, programs.execution.config.run.seed
    count = min(batches, steps)
    state = jax.block_until_ready(programs.initial_state(seed))
    started = time.perf_counter()
    for batch in programs.feed(seed).iterate(Cursor(), Cursor(*divmod(count, steps))):
        state, _ = programs.update(state, batch)
    jax.block_until_ready(state)
    return (time.perf_counter() - started) / count
