"""Steps of compiled programs one after the other, timed apart from the wait for their batches."""

import dataclasses
import time
from collections.abc import Generator
from typing import NamedTuple, Self

import jax

from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Batch, Feed, Programs
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_feed import SampledFeed
from jhgnn.training.state import TrainState
from jhgnn.training.update import UpdateReport


class Step(NamedTuple):
    """What one step told, and its seconds: of waiting until the batch lay on the devices, and of the update."""

    report: UpdateReport
    wait_s: float
    update_s: float

    @property
    def seconds(self) -> float:
        return self.wait_s + self.update_s


class Stepper:
    """Trains step by step.

    Attributes:
        state: after the last step; the next one takes over its memory.
        cursor: where the next batch stands.
    """

    def __init__(
        self,
        programs: Programs,
        state: TrainState,
        *,
        cursor: Cursor | None = None,
        prefetch_threads: int | None = None,
    ) -> None:
        """
        Args:
            programs: compiled.
            state: as `Programs.place` gives it; its seed decides what is drawn and dropped.
            cursor: of the first batch; the first of all if none is given.
            prefetch_threads: in the place of the recipe's, where the host samples; 0 prepares batches in turn.
        """
        self.programs, self.state, self.cursor = programs, state, cursor or Cursor()
        seed = programs.execution.config.run.seed
        self._batches: Generator[Batch, None, None] = feed(programs, seed, prefetch_threads).iterate(self.cursor)

    @classmethod
    def begin(cls, programs: Programs, *, prefetch_threads: int | None = None) -> Self:
        """From the first state of the recipe's seed."""
        execution = programs.execution
        state = programs.place(execution.initial_state(execution.config.run.seed))
        return cls(programs, state, prefetch_threads=prefetch_threads)

    def step(self) -> Step:
        """One update; the clock of the update starts when its batch is there."""
        asked = time.perf_counter()
        batch = next(self._batches)
        jax.block_until_ready(batch.arguments)
        started = time.perf_counter()
        self.state, report = self.programs.update(self.state, batch)
        jax.block_until_ready((self.state, report))
        ended = time.perf_counter()
        self.cursor = batch.following
        return Step(report, started - asked, ended - started)

    def close(self) -> None:
        """Ends the threads of the loader."""
        self._batches.close()


def feed(programs: Programs, seed: int, prefetch_threads: int | None = None) -> Feed:
    """The batches of training, prepared by another number of threads than the recipe's if one is given."""
    execution = programs.execution
    if prefetch_threads is None or not isinstance(execution, Sampled):
        return programs.feed(seed)
    source = execution.source
    settings = dataclasses.replace(source.settings, prefetch_threads=prefetch_threads)
    return SampledFeed(dataclasses.replace(source, settings=settings), execution.batches(seed))
