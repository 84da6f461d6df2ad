"""Which seeds stand in which batch: a pure function of (seed, epoch, step), so that resuming needs two numbers."""

import dataclasses

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.sampled import PADDING
from jhgnn.random.counter_hash import GOLDEN, mix
from jhgnn.sampling.draw import stream_keys

SHUFFLE_STREAM = 0xFFFFFFFF  # in the place of a hop, which never comes to that


@dataclasses.dataclass(frozen=True, order=True)
class Cursor:
    """Where training stands: the next batch is number `step` of epoch `epoch`."""

    epoch: int = 0
    step: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class EpochBatches:
    """Cuts shuffled seeds into batches of one size; the last one of an epoch is filled with `PADDING`.

    Attributes:
        seeds: int32 `[num_seeds]` vertex ids.
        batch_size: seeds in a batch, over all devices.
        seed: decides the order, in [0, 2**32).
        shuffle: False keeps the order given, for evaluation.

    Raises:
        InputError: no seeds, or a batch size below 1.
    """

    seeds: np.ndarray
    batch_size: int
    seed: int
    shuffle: bool = True

    def __post_init__(self) -> None:
        if len(self.seeds) == 0:
            raise InputError("there are no seeds to sample from; the split is empty")
        if self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; need at least 1")
        if self.steps_per_epoch >= 2**32:
            raise InputError(f"an epoch has {self.steps_per_epoch} steps; need below 2**32")

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.seeds) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Shuffled positions of the seeds, int64 `[num_seeds]`, sorted by a bijective hash: there are no ties."""
        if not self.shuffle:
            return np.arange(len(self.seeds))
        first, second = stream_keys(self.seed, epoch, SHUFFLE_STREAM, 0)
        positions = np.arange(len(self.seeds), dtype=np.uint32)
        return np.argsort(mix(mix(positions ^ first) + (second ^ np.uint32(GOLDEN))), kind="stable")

    def batch(self, order: np.ndarray, step: int) -> np.ndarray:
        """Seeds of one step, int32 `[batch_size]`, with `PADDING` at the end of an epoch's last."""
        own = self.seeds[order[step * self.batch_size : (step + 1) * self.batch_size]]
        return np.concatenate([own, np.full(self.batch_size - len(own), PADDING)]).astype(np.int32)

    def global_step(self, cursor: Cursor) -> int:
        """The number of a batch since training began, modulo 2**32: what the draws hash."""
        return (cursor.epoch * self.steps_per_epoch + cursor.step) % 2**32

    def following(self, cursor: Cursor) -> Cursor:
        if cursor.step + 1 < self.steps_per_epoch:
            return Cursor(cursor.epoch, cursor.step + 1)
        return Cursor(cursor.epoch + 1, 0)
