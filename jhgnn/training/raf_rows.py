"""Which learnable rows the devices of a mesh of `data` and `rel` ask each other for, learnt from draws."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jhgnn.distributed.meta.owners import owners_by_reads, place_rows
from jhgnn.distributed.placement import Placement
from jhgnn.sampling.capacities import MULTIPLE, SLACK, Buckets
from jhgnn.sampling.host import HostSampler
from jhgnn.stores.exchange import PairCounts

Ids = Mapping[str, np.ndarray]


class Draws(NamedTuple):
    """What draws for a shard, or for a piece of it, with its capacities; the types whose learnable rows are read, and
    what it takes of the seeds of a place.
    """

    sampler: HostSampler
    buckets: Buckets
    types: Sequence[str]
    part: Callable[[Ids], Ids]


@dataclasses.dataclass(frozen=True, eq=False)
class Reads:
    """Learnable rows that devices read in some batches: of each, by device and by type, int32 ids, distinct within a
    piece.
    """

    by_device: tuple[Mapping[int, Ids], ...]

    @classmethod
    def drawn(
        cls,
        samplers: Sequence[Sequence[Draws]],
        seeds: Iterable[Sequence[Mapping[str, np.ndarray]]],
        seed: int,
    ) -> "Reads":
        """Draws batches.

        Args:
            samplers: of each shard of `rel`, what it draws with.
            seeds: for each batch, numbered by its step from 0, those of each place on `data`.
            seed: of the draws.
        """
        found = []
        for step, places in enumerate(seeds):
            batch: dict[int, Ids] = {}
            for place, own in enumerate(places):
                for shard, several in enumerate(samplers):
                    ids: dict[str, list[np.ndarray]] = {}
                    for sampler, buckets, types, part in several:
                        nodes = sampler.sample(part(own), seed, step, buckets)[0].nodes
                        for name in types:
                            if name in nodes:
                                ids.setdefault(name, []).append(nodes[name][nodes[name] >= 0])
                    read = {name: np.concatenate(every) for name, every in ids.items()}
                    batch[place * len(samplers) + shard] = read
            found.append(batch)
        return cls(tuple(found))

    def placement(
        self, num_nodes: Mapping[str, int], planned: Mapping[str, int], places: int, shards: int
    ) -> Placement:
        """A home for each row: see `jhgnn.distributed.meta.owners`; `planned` are owners that a plan names."""
        counts: list[dict[str, int]] = [{} for _ in range(shards)]
        for batch in self.by_device:
            for device, ids in batch.items():
                own = counts[device % shards]
                for name, each in ids.items():
                    own[name] = own.get(name, 0) + len(each)
        owners = owners_by_reads(counts, tuple(num_nodes)) | dict(planned)
        return place_rows(num_nodes, owners, places, shards)

    def requests(self, placement: Placement, most: PairCounts) -> PairCounts:
        """How many rows each device may ask each one for: the most that it did, with slack, but no more than `most`."""
        asked = np.zeros((placement.num_places, placement.num_places), np.int64)
        for batch in self.by_device:
            for device, ids in batch.items():
                homes = [placement.places(name, each) for name, each in ids.items()]
                counts = sum(np.bincount(each, minlength=placement.num_places) for each in homes)
                asked[device] = np.maximum(asked[device], counts)
        np.fill_diagonal(asked, 0)
        rounded = -(-(asked * SLACK).astype(np.int64) // MULTIPLE) * MULTIPLE
        return pair_counts(np.minimum(rounded, np.array(most)))


def most_requests(placement: Placement, slots: Sequence[Sequence[Mapping[str, int]]]) -> PairCounts:
    """How many rows each device asks each one for at most, from the slots of its pieces, by type."""
    owned = {
        name: np.bincount(homes // placement.rows[name], minlength=placement.num_places)
        for name, homes in placement.homes.items()
    }
    found = np.zeros((placement.num_places, placement.num_places), np.int64)
    for device, pieces in enumerate(slots):
        for name, count in (item for own in pieces for item in own.items()):
            found[device] += np.minimum(count, owned[name])
    np.fill_diagonal(found, 0)
    return pair_counts(found)


def pair_counts(counts: np.ndarray) -> PairCounts:
    """An array `[places, places]`, as programs keep it."""
    return tuple(tuple(map(int, own)) for own in counts)
