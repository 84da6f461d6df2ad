"""Brings batches to the devices: as blocks that the host has sampled ahead of training, or as examples alone."""

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jhgnn.config import SamplingConfig
from jhgnn.distributed.shares import Shares
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.sampling.capacities import Buckets, padding_waste
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import Loader
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.sampling.temporal import TemporalSampler
from jhgnn.training.execution import Batch
from jhgnn.training.loaded_feed import LoadedFeed, prefetch_of
from jhgnn.training.mesh import SHARDED, DeviceMesh
from jhgnn.training.sampled_choices import Sampling
from jhgnn.training.sampled_step import Shard


@dataclasses.dataclass(frozen=True, eq=False)
class BatchSource:
    """What batches are made from, whichever examples they hold.

    Attributes:
        mesh: the devices that share a batch.
        sampling, settings: what is drawn, and the recipe's section `sampling`.
        sampler, buckets: the host's sampler, and capacities of one part of a batch.
        shares: how a batch is cut.
        seeds_of: (examples, seed, step) -> their seeds by type.
        features_of: blocks -> rows of the input frontier, on the host.
    """

    mesh: DeviceMesh
    sampling: Sampling
    settings: SamplingConfig
    sampler: HostSampler | TurnSampler | TemporalSampler
    buckets: Buckets
    shares: Shares
    seeds_of: Callable[[np.ndarray, int, int], Mapping[str, np.ndarray]]
    features_of: Callable[[SampledBlocks], dict[str, Any]]


class SampledFeed(LoadedFeed):
    """Batches of the host sampler, or of examples alone where the devices sample."""

    def __init__(self, source: BatchSource, batches: EpochBatches) -> None:
        super().__init__(source.mesh)
        self._source, self._batches = source, batches
        mesh, sampling = source.mesh, source.sampling
        if sampling.side[0] != "host":
            return
        self._entries = sampling.host_entries()
        parts = source.shares.num_parts
        self._shards = range(parts * mesh.local_shards.start, parts * mesh.local_shards.stop)
        self._loader = Loader(
            source.sampler,
            batches,
            source.buckets,
            seeds_of=lambda ids, step: source.seeds_of(ids, batches.seed, step),
            prefetch=prefetch_of(source.settings),
            gather=self._gather,
            transfer=self._transfer,
            num_shards=mesh.size * parts,
            local_shards=self._shards,
            cut=self._cut,
        )

    def _cut(self, ids: np.ndarray) -> np.ndarray:
        """Parts of all places' shares, one after the other."""
        return self._source.shares.cut(ids).reshape(-1, self._source.shares.size)

    def iterate(self, start: Cursor, stop: Cursor | None = None) -> Generator[Batch, None, None]:
        if self._loader is None:
            yield from self._examples(start, stop)
            return
        yield from super().iterate(start, stop)

    def _gather(self, blocks: SampledBlocks, ids: np.ndarray, step: int) -> Any:
        source = self._source
        if self._entries is not None:
            blocks = self._entries.annotated(blocks, ids, self._batches.seed, step)
        features = {} if source.sampling.features_on_device[0] else source.features_of(blocks)
        own = self._cut(ids)[self._shards.start : self._shards.stop]
        draw = None
        if source.sampling.reuse is not None:
            draw = np.tile(np.array([self._batches.seed, step], np.uint32), (len(own), 1))
        return blocks, own, features, draw, padding_waste(blocks)

    def _transfer(self, prepared: tuple[SampledBlocks, Any]) -> tuple[Any, Any]:
        _, (blocks, ids, features, draw, waste) = prepared
        blocks = with_edges(blocks, self._source.sampling.compressed)
        shard, parts = Shard(ids, blocks, features, draw), self._source.shares.num_parts
        if parts > 1:
            shard = jax.tree.map(lambda leaf: leaf.reshape(-1, parts, *leaf.shape[1:]), shard)
        shard = self._source.mesh.place(shard, SHARDED)
        return shard.blocks, (shard, waste)

    def _examples(self, start: Cursor, stop: Cursor | None) -> Iterator[Batch]:
        source, batches = self._source, self._batches
        mesh, cursor, epoch, order = source.mesh, start, -1, np.zeros(0, np.int64)
        while stop is None or cursor < stop:
            if epoch != cursor.epoch:
                epoch, order = cursor.epoch, batches.order(cursor.epoch)
            whole = batches.batch(order, cursor.step)
            own = source.shares.cut(whole).reshape(mesh.size, -1)[mesh.local_shards.start : mesh.local_shards.stop]
            draw = np.array([batches.seed, batches.global_step(cursor)], np.uint32)
            left = np.tile(whole, (len(own), 1)) if source.sampling.facts else None
            shard = mesh.place(Shard(own, None, {}, np.tile(draw, (len(own), 1)), left), SHARDED)
            following = batches.following(cursor)
            self.num_batches += 1
            yield Batch(cursor, following, 0, (shard, self._no_votes))
            cursor = following
