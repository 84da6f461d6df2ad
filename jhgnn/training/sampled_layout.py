"""What the programs of mini-batches are compiled for, learnt by sampling the first batches."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.semantic_graph import Csr
from jhgnn.nn.embeddings import tables_of
from jhgnn.runtime.mapped_pages import give_back
from jhgnn.sampling.capacities import Buckets, presampled
from jhgnn.sampling.device import device_edges
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.reuse import TurnSampler
from jhgnn.sampling.temporal import TemporalSampler, host_sampler
from jhgnn.stores.device import DeviceRows
from jhgnn.stores.exchange import PairCounts
from jhgnn.training.parts import Parts
from jhgnn.training.reuse import check_copies, empty_rows
from jhgnn.training.sampled_step import Resident

if TYPE_CHECKING:
    from jhgnn.training.sampled import Sampled

PRESAMPLED_DRAWS = 16  # shares drawn to learn capacities from
PRESAMPLED_BATCHES = 4  # at least, where shares have homes and requests are learnt as well


class Variant(NamedTuple):
    """What one program is compiled for.

    Attributes:
        bucket: of slots.
        requests: rows of each type that a device may ask another one for; or of all types, by pair of devices.
        frontiers: for each hop, vertices that a device may ask another one about, where edges are cut over the devices;
            else no hops.
    """

    bucket: int
    requests: FrozenCounts | PairCounts = FrozenCounts(())
    frontiers: tuple[FrozenCounts, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """What programs are compiled for: capacities of one part of a batch, and what stays on the devices.

    Attributes:
        variants: one for each program; those of a bucket stand together, and the last of all holds any batch.
    """

    sampler: HostSampler | TurnSampler | TemporalSampler
    buckets: Buckets
    resident: Resident
    variants: tuple[Variant, ...]

    def bucket(self, variant: int) -> int:
        return self.variants[variant].bucket

    def first(self, bucket: int) -> int:
        """The first variant of a bucket."""
        return next(index for index, each in enumerate(self.variants) if each.bucket == bucket)


def learn_layout(execution: "Sampled", parts: Parts | None) -> Layout:
    """Samples shares of the first batches, and lays out the arrays to place; `parts` are those that features, and all
    rows that programs fetch, are cut by.
    """
    sampling, config = execution.sampling, execution.config
    sampler: HostSampler | TurnSampler | TemporalSampler = host_sampler(
        sampling.sampled, sampling.plan, config.sampling.threads, sampling.facts
    )
    if sampling.reuse is not None:
        sampler = TurnSampler(sampling.reuse.graphs, sampling.plan, config.sampling.threads)
    buckets = presampled(sampler, config.run.seed, presampled_seeds(execution), quantiles=(1.0,))
    on_device, samples = sampling.features_on_device[0], sampling.side[0] == "device"
    features, homes = dict(sampling.features.joined() if on_device else {}), {}
    edges: Mapping[str, Csr] = {}
    nodes: Mapping[str, np.ndarray] = {}
    if samples and not sampling.partitioned:
        edges = device_edges(sampling.sampled, sampling.plan)
    variants = tuple(Variant(bucket) for bucket in range(len(buckets.capacities)))
    if parts is not None:
        assert not isinstance(sampler, TemporalSampler)
        features = parts.cut_features(features)
        variants = _cut_variants(execution, parts, sampler, buckets)
        if sampling.partitioned:
            edges, nodes = parts.cut_edges(sampling.sampled, sampling.plan)
            for each in sampling.sampled.edges.values():  # from now on the devices draw
                give_back(each.indptr)
                give_back(each.senders)
        read = [*features, *tables_of(execution.abstract_params), *nodes]
        homes = {name: parts.placement.homes[name] for name in dict.fromkeys(read)}
    resident = Resident(
        task=execution.task_data,
        features=DeviceRows(features),
        edges=edges,
        facts=dict(sampling.facts) if samples else {},
        homes=homes,
        nodes=nodes,
        kept={} if sampling.reuse is None else empty_rows(sampling.reuse, sampling, config, execution.model),
    )
    if execution.mesh.platform == "cpu":  # whose devices share the host's memory
        check_copies(resident.kept, len(execution.mesh.local_devices), config.sampling.hot_share)
    return Layout(sampler, buckets, resident, variants)


def presampled_seeds(execution: "Sampled") -> Iterator[Mapping[str, np.ndarray]]:
    """Seeds of shares of the first batches, int32 by type."""
    for step, shares in enumerate(presampled_shares(execution)):
        for share in shares:
            yield execution.seeds_of(share, execution.config.run.seed, step)


def presampled_shares(execution: "Sampled") -> Iterator[np.ndarray]:
    """The first batches by part, int32 `[parts, size]`; full ones, while there are any."""
    batches = execution.batches(execution.config.run.seed)
    order = batches.order(0)
    count = max(1, min(batches.steps_per_epoch, PRESAMPLED_DRAWS // execution.num_parts))
    if execution.parts is not None:
        count = max(count, min(batches.steps_per_epoch, PRESAMPLED_BATCHES))
    for step in range(count):
        yield execution.shares.cut(batches.batch(order, step)).reshape(execution.num_parts, -1)


def _cut_variants(
    execution: "Sampled", parts: Parts, sampler: HostSampler | TurnSampler, buckets: Buckets
) -> tuple[Variant, ...]:
    """Learns how many rows devices ask each other for; the last variant of each bucket suffices for any batch."""
    seed, num_parts = execution.config.run.seed, execution.shares.num_parts
    seeds = (
        [
            [execution.seeds_of(own, seed, step) for own in of_device]
            for of_device in shares.reshape(execution.mesh.size, num_parts, -1)
        ]
        for step, shares in enumerate(presampled_shares(execution))
    )
    num_hops = execution.plan.num_hops if execution.sampling.partitioned else 0
    learnt, frontiers = parts.learnt_requests(sampler, buckets, seeds, seed, num_hops)
    found: list[Variant] = []
    for bucket, capacities in enumerate(buckets.capacities):
        most = parts.most_requests({name: count * num_parts for name, count in capacities[-1].items})
        slots = capacities[:num_hops]  # of a hop's vertices, all of which may be at home elsewhere
        if bucket == 0:
            found.append(Variant(bucket, _at_most(learnt, most), tuple(map(_at_most, frontiers, slots))))
        found.append(Variant(bucket, most, slots))
    return tuple(dict.fromkeys(found))


def _at_most(counts: FrozenCounts, bound: FrozenCounts) -> FrozenCounts:
    return FrozenCounts.of({name: min(count, bound.get(name)) for name, count in counts.items})
