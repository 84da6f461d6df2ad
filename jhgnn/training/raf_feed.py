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
from jhgnn.training.raf_shards import RelShard
from jhgnn.training.raf_step import BranchReader, RelBatch

Seeds = Mapping[str, np.ndarray]

Drawn = tuple[Sequence[SampledBlocks], int]
"""The blocks of a shard's pieces, and the bucket that holds them."""

SPECS: Any = RelBatch(SHARDED, BY_DEVICE, BY_DEVICE)  # type: ignore[arg-type]  # a spec for all buffers
"""How a batch is cut over the mesh."""


@dataclasses.dataclass(frozen=True, eq=False)
class RelSource:
    """What the batches of all shards are made from.

    Attributes:
        mesh: of both axes.
        settings: the recipe's section `sampling`.
        shards: what each draws.
        samplers: of each shard, one for each of its pieces.
        capacities: of each bucket, of each shard those of its pieces for one place's share of a batch.
        readers: of each bucket, those of each shard.
        compressed: draws whose tables come with their compressed edges.
        seeds_of: (examples, seed, step) -> their seeds by type.
        features_of: (blocks, types read) -> rows of the input frontier, on the host.
        requests: of each bucket, learnable rows that each device may ask each one for; none where nothing is learnt.
        only: as in `RelUpdateProgram`.
    """

    mesh: DeviceMesh
    settings: SamplingConfig
    shards: tuple[RelShard, ...]
    samplers: tuple[tuple[HostSampler, ...], ...]
    capacities: tuple[tuple[tuple[Capacities, ...], ...], ...]
    readers: tuple[tuple[BranchReader, ...], ...]
    compressed: Collection[str]
    seeds_of: Callable[[np.ndarray, int, int], Seeds]
    features_of: Callable[[SampledBlocks, Sequence[str]], dict[str, Any]]
    requests: tuple[PairCounts, ...] = ()
    only: int | None = None

    def sizes(self, bucket: int) -> Sizes:
        """Elements of a device's buffers: as many as the fullest shard needs that its program is for."""
        readers = self.readers[bucket]
        present = readers if self.only is None else (readers[self.only],)
        return largest([reader.packing for reader in present])

    def batch(self, ids: np.ndarray, seed: int, step: int, bucket: int) -> RelBatch:
        """A whole batch in one bucket, as this process's devices need it; on the host.

        Args:
            ids: int32 `[batch]` of all places.
        """
        cut = ids.reshape(self.mesh.size, -1)
        found = [
            self.drawn(shard, self.seeds_of(cut[place], seed, step), seed, step, self.capacities[bucket:])
            for place, shard in self.mesh.local_devices
        ]
        return self.packed(found, ids, bucket)

    def drawn(self, shard: int, share: Seeds, seed: int, step: int, capacities: Sequence[Any]) -> Drawn:
        """The blocks of a shard's pieces for a place's share, and the first of some buckets that holds all of them."""
        found, most = [], 0
        for number, (sampler, piece) in enumerate(zip(self.samplers[shard], self.shards[shard].pieces, strict=True)):
            seeds, own = piece.seeds(share), Buckets(tuple(each[shard][number] for each in capacities))
            blocks, bucket = sampler.sample(seeds, seed, step, own)
            found.append(blocks)
            most = max(most, bucket)
        if most and len(found) > 1:  # pieces of one shard are packed for one bucket
            return self.drawn(shard, share, seed, step, capacities[most : most + 1])[0], most
        return found, most

    def packed(self, found: Sequence[Drawn], ids: np.ndarray, bucket: int) -> RelBatch:
        """Each local device's blocks with their features; blocks of nothing for those of a bigger bucket than this."""
        mesh, devices = self.mesh, self.mesh.local_devices
        buffers = {name: np.zeros((len(devices), size), name) for name, size in self.sizes(bucket).items()}
        too_small = np.array([own > bucket for _, own in found])
        for number, (pieces, _) in enumerate(found):
            shard = devices[number][1]
            reader = self.readers[bucket][shard]
            if too_small[number]:
                pieces = self._nothing(shard, ids.size // mesh.size, bucket)
            read = []
            for piece, blocks in zip(reader.pieces, pieces, strict=True):
                complete = with_edges(blocks, self.compressed)
                features = self.features_of(complete, piece.own.reads)
                read.append((dataclasses.replace(complete, overflowed=np.zeros((), bool)), features))
            leaves = jax.tree.leaves(read)
            reader.packing.write(leaves, {name: buffer[number] for name, buffer in buffers.items()})
        own = ids.reshape(mesh.size, -1)[mesh.local_shards.start : mesh.local_shards.stop]
        return RelBatch(own, buffers, too_small)

    def _nothing(self, shard: int, share: int, bucket: int) -> Sequence[SampledBlocks]:
        """What a shard draws of a place without targets: a program runs on it, and its results are thrown away.

        Zeros do not do, since kernels refuse a table whose edges they do not describe.
        """
        seeds = self.seeds_of(np.full(share, -1, np.int32), 0, 0)
        return self.drawn(shard, seeds, 0, 0, self.capacities[bucket : bucket + 1])[0]

    def place(self, batch: RelBatch) -> RelBatch:
        return self.mesh.place(batch, SPECS)


class _ShardSamplers:
    """All local devices' samplers as the loader's one."""

    def __init__(self, source: RelSource) -> None:
        self._source = source

    @property
    def plan(self) -> SamplingPlan:
        return self._source.samplers[0][0].plan

    def sample(self, seeds: Seeds, seed: int, step: int, buckets: Buckets) -> tuple[Any, int]:
        raise NotImplementedError("the loader of several places samples shards")

    def sample_shards(
        self, shards: Sequence[Seeds], seed: int, step: int, buckets: Buckets, elsewhere: Sequence[Seeds] = ()
    ) -> tuple[Any, int]:
        """Blocks of each local device with their buckets, and the bucket to pack them for."""
        source = self._source
        first, devices = source.mesh.local_shards.start, source.mesh.local_devices

        def drawn(capacities: Sequence[Any]) -> list[Drawn]:
            return [source.drawn(shard, shards[place - first], seed, step, capacities) for place, shard in devices]

        found = drawn(source.capacities)
        most = max(bucket for _, bucket in found)
        if most == 0 or jax.process_count() > 1:
            return found, 0  # other processes' shares are not known here: the program tells all that one was too large
        return [(blocks, most) for blocks, _ in drawn(source.capacities[most : most + 1])], most


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
            fixed(source.capacities[0][0][0]),
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
        every = [padding_waste(blocks) for pieces, _ in found for blocks in pieces]
        waste = {kind: sum(own[kind] for own in every) / len(every) for kind in self.waste}
        buckets = {bucket for _, bucket in found}
        bucket = 0 if jax.process_count() > 1 else max(buckets)
        return self._source.packed(found, ids, bucket), waste

    def _transfer(self, prepared: tuple[Any, Any]) -> tuple[Any, Any]:
        _, (batch, waste) = prepared
        placed = self._source.place(batch)
        return placed.buffers, (placed, waste)
