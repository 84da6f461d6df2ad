"""Capacities: learned from sample batches, few shapes, overflow to a bigger bucket, nothing dropped."""

import itertools

import jax
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.sampling.capacities import Buckets, fixed, padding_waste, presampled, room
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan
from tests.sampling.test_samplers import check_against_reference


@pytest.fixture(scope="module")
def sampler(graph) -> HostSampler:
    return HostSampler(graph, fan_out_plan(graph, [3, 2], 2))


def batches(graph, count: int = 8, size: int = 10) -> list[dict[str, np.ndarray]]:
    epoch = EpochBatches(graph.splits["train"], size, seed=3)
    return [{"paper": epoch.batch(epoch.order(0), step)} for step in range(count)]


def test_presampled_buckets_grow_and_the_last_holds_anything(graph, sampler) -> None:
    buckets = presampled(sampler, 0, batches(graph), slack=1.0)
    rooms = [room(sampler.plan, capacities) for capacities in buckets.capacities]
    assert 2 <= len(rooms) <= 3
    for smaller, larger in itertools.pairwise(rooms):
        assert (smaller <= larger).all()
    assert buckets.capacities[-1] == sampler.plan.bound_capacities({"paper": 10})
    most = np.max([sampler.count(batch, 0, step) for step, batch in enumerate(batches(graph))], axis=0)
    assert (most <= rooms[-2]).all()


def test_overflow_moves_to_a_bigger_bucket_and_drops_nothing(graph, sampler) -> None:
    seeds, bound = batches(graph)[0], sampler.plan.bound_capacities({"paper": 10})
    tight = sampler.plan.bound_capacities({"paper": 10})
    tight = (*tight[:-1], type(tight[-1]).of({name: tight[-2].get(name, 1) + 1 for name, _ in tight[-1].items}))
    blocks, bucket = sampler.sample(seeds, 0, 0, Buckets((tight, bound)))
    assert bucket == 1
    assert blocks.capacities == bound
    check_against_reference(sampler.graph, sampler.plan, blocks, seeds, 0, 0)


def test_as_many_compilations_as_buckets(graph, sampler) -> None:
    buckets = presampled(sampler, 0, batches(graph, 2), quantiles=(0.5, 1.0))

    @jax.jit
    def step(blocks):
        return sum(table.num_neighbors.sum() for tables in blocks.hops for table in tables.values())

    used = set()
    for index, batch in enumerate(batches(graph, 10)):
        blocks, bucket = sampler.sample(batch, 0, index, buckets)
        used.add(bucket)
        step(blocks)
    assert step._cache_size() == len(used)


def test_padding_waste_counts_slots_and_entries(graph, sampler) -> None:
    seeds = {"paper": np.array([0, 1, -1, -1], np.int32)}
    blocks, _ = sampler.sample(seeds, 0, 0, fixed(sampler.plan.bound_capacities({"paper": 4})))
    waste = padding_waste(blocks)
    filled = sum((ids >= 0).sum() for ids in blocks.nodes.values())
    assert waste["slots"] == pytest.approx(1 - filled / sum(len(ids) for ids in blocks.nodes.values()))
    entries = [table for tables in blocks.hops for table in tables.values()]
    assert waste["entries"] == pytest.approx(
        1 - sum(table.mask.sum() for table in entries) / sum(table.senders.size for table in entries)
    )


def test_bad_arguments(graph, sampler) -> None:
    with pytest.raises(InputError, match="no batches"):
        presampled(sampler, 0, [])
    with pytest.raises(InputError, match="ascending quantiles"):
        presampled(sampler, 0, batches(graph), quantiles=(1.0, 0.5))
