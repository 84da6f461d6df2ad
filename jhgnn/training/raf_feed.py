"""Brings batches to the shards of `rel`: each device's own branches, sampled, gathered and packed on the host."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jhgnn.config import SamplingConfig
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.sampling.capacities import Buckets, fixed, padding_waste
from jhgnn.sampling.compressed import with_edges
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import Loader
from jhgnn.sampling.plan import Capacities, SamplingPlan
from jhgnn.stores.exchange import PairCounts
from jhgnn.training.execution import Batch
from jhgnn.training.loaded_feed import LoadedFeed, prefetch_of
from jhgnn.training.mesh import BY_DEVICE, SHARDED, DeviceMesh
from jhgnn.training.packing import Sizes, largest
from jhgnn.training.raf_step import BranchReader, RelBatch

Seeds = Mapping[str, np.ndarray]

SPECS: Any = RelBatch(SHARDED, BY_DEVICE, BY_DEVICE)  # type: ignore[arg-type]  # a spec for all buffers
"""How a batch is cut over the mesh."""


@dataclasses.dataclass(frozen=True, eq=False)
class RelSource:
    """What the batches of all shards are made from.

    Attributes:
        mesh: of both axes.
        settings: the recipe's section `sampling`.
        samplers: of each shard, over its own plan.
        capacities: of each bucket, those of each shard for one place's share of a batch.
        readers: of each bucket, those of each shard.
        compressed: draws whose tables come with their compressed edges.
        seeds_of: (examples, seed, step) -> their seeds by type.
        features_of: (blocks, types read) -> rows of the input frontier, on the host.
        requests: of each bucket, learnable rows that each device may ask each one for; none where nothing is learnt.
    """

    mesh: DeviceMesh
    settings: SamplingConfig
    samplers: tuple[HostSampler, ...]
    capacities: tuple[tuple[Capacities, ...], ...]
    readers: tuple[tuple[BranchReader, ...], ...]
    compressed: Collection[str]
    seeds_of: Callable[[np.ndarray, int, int], Seeds]
    features_of: Callable[[SampledBlocks, Sequence[str]], dict[str, Any]]
    requests: tuple[PairCounts, ...] = ()

    def sizes(self, bucket: int) -> Sizes:
        """Elements of a device's buffers."""
        return largest([reader.packing for reader in self.readers[bucket]])

    def batch(self, ids: np.ndarray, seed: int, step: int, bucket: int) -> RelBatch:
        """A whole batch in one bucket, as this process's devices need it; on the host.

        Args:
            ids: int32 `[batch]` of all places.
        """
        cut = ids.reshape(self.mesh.size, -1)
        found = [
            self.samplers[shard].sample(self.seeds_of(cut[place], seed, step), seed, step, self._buckets(shard, bucket))
            for place, shard in self.mesh.local_devices
        ]
        return self.packed(found, ids, bucket)

    def packed(self, found: Sequence[tuple[SampledBlocks, int]], ids: np.ndarray, bucket: int) -> RelBatch:
        """Each local device's blocks with their features; zeros for blocks of a bigger bucket than this."""
        mesh, devices = self.mesh, self.mesh.local_devices
        buffers = {name: np.zeros((len(devices), size), name) for name, size in self.sizes(bucket).items()}
        too_small = np.array([own > bucket for _, own in found])
        for number, (blocks, _) in enumerate(found):
            if too_small[number]:
                continue
            reader = self.readers[bucket][devices[number][1]]
            complete = with_edges(blocks, self.compressed)
            features = self.features_of(complete, reader.own.reads)
            leaves = jax.tree.leaves((dataclasses.replace(complete, overflowed=np.zeros((), bool)), features))
            reader.packing.write(leaves, {name: buffer[number] for name, buffer in buffers.items()})
        own = ids.reshape(mesh.size, -1)[mesh.local_shards.start : mesh.local_shards.stop]
        return RelBatch(own, buffers, too_small)

    def place(self, batch: RelBatch) -> RelBatch:
        return self.mesh.place(batch, SPECS)

    def _buckets(self, shard: int, bucket: int) -> Buckets:
        """From a bucket on."""
        return Buckets(tuple(every[shard] for every in self.capacities[bucket:]))


class _ShardSamplers:
    """All local devices' samplers as the loader's one."""

    def __init__(self, source: RelSource) -> None:
        self._source = source

    @property
    def plan(self) -> SamplingPlan:
        return self._source.samplers[0].plan

    def sample(self, seeds: Seeds, seed: int, step: int, buckets: Buckets) -> tuple[Any, int]:
        raise NotImplementedError("the loader of several places samples shards")

    def sample_shards(
        self, shards: Sequence[Seeds], seed: int, step: int, buckets: Buckets, elsewhere: Sequence[Seeds] = ()
    ) -> tuple[Any, int]:
        """Blocks of each local device with their buckets, and the bucket to pack them for."""
        source = self._source
        first = source.mesh.local_shards.start
        found = [
            source.samplers[shard].sample(shards[place - first], seed, step, source._buckets(shard, 0))
            for place, shard in source.mesh.local_devices
        ]
        most = max(bucket for _, bucket in found)
        if most == 0 or jax.process_count() > 1:
            return found, 0  # other processes' shares are not known here: the program tells all that one was too large
        again = [
            source.samplers[shard].sample(shards[place - first], seed, step, fixed(source.capacities[most][shard]))
            for place, shard in source.mesh.local_devices
        ]
        return [(blocks, most) for blocks, _ in again], most


class RelFeed(LoadedFeed):
    """The batches of training; of what they waste the mean over devices counts.

    Attributes:
        batches: the examples by epoch and step.
    """

    def __init__(self, source: RelSource, batches: EpochBatches) -> None:
        super().__init__(source.mesh)
        self._source, self.batches = source, batches
        mesh = source.mesh
        self._loader = Loader(
            _ShardSamplers(source),
            batches,
            fixed(source.capacities[0][0]),
            seeds_of=lambda ids, step: source.seeds_of(ids, batches.seed, step),
            prefetch=prefetch_of(source.settings),
            gather=self._gather,
            transfer=self._transfer,
            num_shards=mesh.size,
            local_shards=mesh.local_shards,
        )

    def again(self, batch: Batch, bucket: int) -> RelBatch:
        """The same batch in a bigger bucket, on the devices; its draws depend on nothing but its place in training."""
        batches, source = self.batches, self._source
        ids = batches.batch(batches.order(batch.cursor.epoch), batch.cursor.step)
        return source.place(source.batch(ids, batches.seed, batches.global_step(batch.cursor), bucket))

    def _gather(self, found: Any, ids: np.ndarray, step: int) -> Any:
        every = [padding_waste(blocks) for blocks, _ in found]
        waste = {kind: sum(own[kind] for own in every) / len(every) for kind in self.waste}
        buckets = {bucket for _, bucket in found}
        bucket = 0 if jax.process_count() > 1 else max(buckets)
        return self._source.packed(found, ids, bucket), waste

    def _transfer(self, prepared: tuple[Any, Any]) -> tuple[Any, Any]:
        _, (batch, waste) = prepared
        placed = self._source.place(batch)
        return placed.buffers, (placed, waste)
