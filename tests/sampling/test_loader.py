"""The loader: the same batches however they are prepared, in order, within bounds, and nothing left behind."""

import threading
import time

import jax
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import Loader, LoaderError, Prefetch
from jhgnn.sampling.native import gather_rows
from jhgnn.sampling.plan import fan_out_plan
from tests.sampling.test_samplers import assert_same

BATCH = 16  # 100 seeds: six full batches and one of four


@pytest.fixture(scope="module")
def made(graph):
    sampler = HostSampler(graph, fan_out_plan(graph, [4, 3], 2))
    batches = EpochBatches(graph.splits["train"].astype(np.int32), BATCH, seed=5)
    order = batches.order(0)
    buckets = presampled(sampler, 5, [{"paper": batches.batch(order, step)} for step in range(4)])
    return sampler, batches, buckets


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("jhgnn-loader")]


@pytest.mark.parametrize(
    "prefetch",
    [Prefetch(1, 1), Prefetch(2, 3), Prefetch(3, 8), Prefetch(2, 8, max_bytes=1)],
    ids=["one", "two", "three", "memory bound"],
)
def test_prefetching_changes_nothing(made, prefetch: Prefetch) -> None:
    plain = list(Loader(*made, prefetch=Prefetch(0)).iterate(stop=Cursor(2)))
    ahead = list(Loader(*made, prefetch=prefetch).iterate(stop=Cursor(2)))
    assert [batch.cursor for batch in plain] == [Cursor(epoch, step) for epoch in range(2) for step in range(7)]
    for own, other in zip(plain, ahead, strict=True):
        assert (own.cursor, own.following, own.step, own.bucket) == (
            other.cursor, other.following, other.step, other.bucket)  # fmt: skip
        assert_same(own.blocks, other.blocks)
    assert not loader_threads()


def test_resuming_at_a_cursor_is_exact(made) -> None:
    whole = list(Loader(*made).iterate(stop=Cursor(3)))
    stopped = whole[9]
    resumed = list(Loader(*made).iterate(stopped.following, stop=Cursor(3)))
    assert [batch.cursor for batch in resumed] == [batch.cursor for batch in whole[10:]]
    for own, other in zip(whole[10:], resumed, strict=True):
        assert_same(own.blocks, other.blocks)


def test_epochs_shuffle_all_seeds_and_the_last_batch_is_padded(graph, made) -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}
    for batch in Loader(*made).iterate(stop=Cursor(2)):
        ids = batch.blocks.frontier(0, "paper")
        assert ids.shape == (BATCH,)
        assert (ids >= 0).sum() == (4 if batch.cursor.step == 6 else BATCH)
        seen[batch.cursor.epoch] += ids[ids >= 0].tolist()
    for epoch in (0, 1):
        assert sorted(seen[epoch]) == graph.splits["train"].tolist()
    assert seen[0] != seen[1]
    assert seen[0] != sorted(seen[0])
    unshuffled = EpochBatches(graph.splits["train"], BATCH, seed=5, shuffle=False)
    np.testing.assert_array_equal(unshuffled.batch(unshuffled.order(1), 0), graph.splits["train"][:BATCH])


def test_shuffle_is_uniform_over_positions() -> None:
    batches = [EpochBatches(np.arange(5), 5, seed) for seed in range(400)]
    counts = np.zeros((5, 5))
    for own in batches:
        for epoch in range(5):
            counts[np.arange(5), own.order(epoch)] += 1
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400 * 0.8)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_failure_arrives_in_its_turn_with_its_cause(made, threads: int) -> None:
    def gather(blocks, ids, step):
        if (blocks.frontier(0, "paper") >= 0).sum() == 4:  # the last batch of the epoch
            raise KeyError("no such feature")

    iterator = Loader(*made, prefetch=Prefetch(threads, 4), gather=gather).iterate()
    assert [next(iterator).cursor.step for _ in range(6)] == list(range(6))
    with pytest.raises(LoaderError, match="epoch 0, step 6") as raised:
        next(iterator)
    assert isinstance(raised.value.__cause__, KeyError)
    assert not loader_threads()


def test_stopping_early_ends_the_threads(made) -> None:
    def slow(blocks, ids, step):
        time.sleep(0.01)

    for batch in Loader(*made, prefetch=Prefetch(3, 6), gather=slow).iterate():
        if batch.cursor.step == 2:
            assert loader_threads()
            break
    assert not loader_threads()

    def train() -> None:
        for _ in Loader(*made, prefetch=Prefetch(3, 6), gather=slow).iterate():
            raise RuntimeError("training failed")

    with pytest.raises(RuntimeError, match="training failed"):
        train()
    assert not loader_threads()


def test_depth_and_memory_bound_what_is_ahead(made) -> None:
    def most_ahead(prefetch: Prefetch) -> int:
        prepared: list[int] = []
        ahead = []
        loader = Loader(*made, prefetch=prefetch, gather=lambda *_: prepared.append(1))
        for taken, _ in enumerate(loader.iterate(stop=Cursor(2)), start=1):
            time.sleep(0.005)
            ahead.append(len(prepared) - taken)
        return max(ahead)

    size = next(Loader(*made).iterate()).blocks.nbytes
    assert most_ahead(Prefetch(2, 3)) <= 3
    assert most_ahead(Prefetch(2, 6, max_bytes=2 * size + 1)) <= 2
    assert most_ahead(Prefetch(2, 6, max_bytes=1)) <= 1


def test_gathering_and_transfer_run_on_the_host_threads(graph, made) -> None:
    features = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    names = set()

    def gather(blocks, ids, step):
        names.add(threading.current_thread().name.split("_")[0])
        return gather_rows(features, blocks.nodes["paper"])

    for batch in Loader(*made, gather=gather, transfer=jax.device_put).iterate(stop=Cursor(1)):
        ids = np.asarray(batch.blocks.nodes["paper"])
        assert isinstance(batch.inputs, jax.Array)
        np.testing.assert_array_equal(batch.inputs, np.where(ids[:, None] >= 0, features[ids], 0))
    assert names == {"jhgnn-loader"}


def test_shards_hold_the_same_draws_as_the_whole_batch(made) -> None:
    sampler, batches, _ = made
    shard = presampled(sampler, 5, [{"paper": batches.batch(batches.order(0), 0)[: BATCH // 4]}])
    whole = list(Loader(*made).iterate(stop=Cursor(1)))
    sharded = list(Loader(sampler, batches, shard, num_shards=4).iterate(stop=Cursor(1)))
    local = list(Loader(sampler, batches, shard, num_shards=4, local_shards=range(2, 4)).iterate(stop=Cursor(1)))
    for one, many, own in zip(whole, sharded, local, strict=True):
        seeds = many.blocks.frontier(0, "paper")
        assert seeds.shape == (4, BATCH // 4)
        np.testing.assert_array_equal(seeds.reshape(-1), one.blocks.frontier(0, "paper"))
        assert_same(own.blocks, jax.tree.map(lambda leaf: leaf[2:], many.blocks))
        assert own.bucket == many.bucket
        for draw in sampler.plan.draws_at(0):
            table = one.blocks.table(0, draw.name, draw.source, draw.target)
            cut = many.blocks.table(0, draw.name, draw.source, draw.target)
            expected = np.where(table.mask, table.sender_ids[table.senders], -1)
            ids = np.stack([cut.sender_ids[shard][cut.senders[shard]] for shard in range(4)])
            np.testing.assert_array_equal(np.where(cut.mask, ids, -1).reshape(expected.shape), expected)


def test_bad_arguments(made) -> None:
    sampler, batches, buckets = made
    with pytest.raises(InputError, match="does not divide over 3 devices"):
        Loader(sampler, batches, buckets, num_shards=3)
    with pytest.raises(InputError, match=r"no batch of epochs with 7 steps"):
        Loader(sampler, batches, buckets).iterate(Cursor(0, 7))
    with pytest.raises(InputError, match="no seeds"):
        EpochBatches(np.zeros(0, np.int32), 4, 0)
    with pytest.raises(InputError, match="batch_size is 0"):
        EpochBatches(np.zeros(3, np.int32), 0, 0)
    with pytest.raises(InputError, match="prefetch has -1 threads"):
        Prefetch(-1)
    with pytest.raises(InputError, match="max_bytes is 0"):
        Prefetch(max_bytes=0)
