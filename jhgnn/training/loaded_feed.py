"""Batches that a loader prepares on host threads, ahead of training, with what preparing them took."""

import dataclasses
from collections.abc import Generator
from typing import Any

import numpy as np

from jhgnn.config import SamplingConfig
from jhgnn.sampling.epoch import Cursor
from jhgnn.sampling.loader import Loader, Prefetch
from jhgnn.training.execution import Batch, Feed
from jhgnn.training.mesh import SHARDED, DeviceMesh


class LoadedFeed(Feed):
    """See the module. A subclass sets `_loader`, whose batches have as `inputs` what an update takes, and their waste.

    Attributes:
        host_s: seconds of host threads that sampling, gathering and handing over took.
        waste: shares of slots and of table entries that were padding, summed over `num_batches`.
        num_batches: that have come.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._no_votes = mesh.place(np.zeros((len(mesh.local_shards), 2), np.float32), SHARDED)
        self._loader: Loader | None = None
        self.waste = {"slots": 0.0, "entries": 0.0}
        self.host_s = {"sample": 0.0, "gather": 0.0, "transfer": 0.0}
        self.num_batches = 0

    @property
    def wait_s(self) -> float:
        """Seconds that the training thread waited for batches."""
        return 0.0 if self._loader is None else self._loader.wait_s

    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Batch, None, None]:
        assert self._loader is not None
        batches = self._loader.iterate(start, stop)
        try:
            for batch in batches:
                arguments, waste = batch.inputs
                for kind, part in waste.items():
                    self.waste[kind] += part
                self.host_s["sample"] += batch.sample_s
                self.host_s["gather"] += batch.gather_s
                self.host_s["transfer"] += batch.transfer_s
                self.num_batches += 1
                yield Batch(batch.cursor, batch.following, batch.bucket, (arguments, self._no_votes))
        finally:
            batches.close()  # type: ignore[attr-defined]

    def voting(self, batch: Batch, votes: np.ndarray) -> Batch:
        arguments, _ = batch.arguments
        placed: Any = self._mesh.place(np.tile(votes, (len(self._mesh.local_shards), 1)), SHARDED)
        return dataclasses.replace(batch, arguments=(arguments, placed))


def prefetch_of(settings: SamplingConfig) -> Prefetch:
    """How far a loader runs ahead, by the recipe's section `sampling`."""
    return Prefetch(settings.prefetch_threads, settings.prefetch_depth, int(settings.prefetch_memory_gib * 2**30))
