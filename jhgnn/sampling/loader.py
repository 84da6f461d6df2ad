"""The loader: samples, gathers and transfers batches ahead of training, on host threads and in bounded memory."""

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import jax
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.sampled import SampledBlocks
from jhgnn.sampling.capacities import Buckets
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.plan import SamplingPlan


class BatchSampler(Protocol):
    """What draws a loader's batches: `HostSampler`, or several of them."""

    @property
    def plan(self) -> SamplingPlan: ...

    def sample(self, seeds: Mapping[str, np.ndarray], seed: int, step: int, buckets: Buckets) -> tuple[Any, int]: ...

    def sample_shards(
        self,
        shards: Sequence[Mapping[str, np.ndarray]],
        seed: int,
        step: int,
        buckets: Buckets,
        elsewhere: Sequence[Mapping[str, np.ndarray]] = (),
    ) -> tuple[Any, int]: ...


SeedsOf = Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
Gather = Callable[[SampledBlocks, np.ndarray, int], Any]
Transfer = Callable[[Any], Any]
Cut = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Prefetch:
    """How far and how wide the loader runs ahead.

    Attributes:
        threads: batches prepared at the same time; 0 prepares each when it is asked for, on the caller's thread.
        depth: batches prepared or in preparation ahead of the one in use, at least 1 where there are threads.
        max_bytes: of host memory for them, or None. At least one batch is always prepared, however large.
    """

    threads: int = 1
    depth: int = 4
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.threads < 0 or (self.threads > 0 and self.depth < 1):
            raise InputError(
                f"prefetch has {self.threads} threads and depth {self.depth}; need threads >= 0, depth >= 1"
            )
        if self.max_bytes is not None and self.max_bytes < 1:
            raise InputError(f"prefetch.max_bytes is {self.max_bytes}; need at least 1, or none for no bound")


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """One batch, ready for the step.

    Attributes:
        cursor: its epoch and step.
        following: those of the next batch, at which training resumes after this one.
        step: its number since training began, which the draws hashed.
        ids: its examples, int32 `[batch_size]`, or of this process's shards, `[shards, share]`; `PADDING` for none.
        blocks: its tables, with a leading `[shards]` axis where the loader has shards.
        inputs: what `gather` made of the blocks, or None.
        bucket: number of the bucket that holds it; above 0, it overflowed the smallest.
        sample_s: seconds of a host thread that sampling took.
        gather_s: likewise for gathering.
        transfer_s: likewise for handing over to the devices.
    """

    cursor: Cursor
    following: Cursor
    step: int
    ids: np.ndarray
    blocks: SampledBlocks
    inputs: Any
    bucket: int
    sample_s: float
    gather_s: float
    transfer_s: float


class LoaderError(RuntimeError):
    """A batch could not be prepared; `__cause__` is what its thread raised."""


class Loader:
    """Iterates over batches from a cursor on. What it yields depends on seeds and cursor alone, never on prefetching.

    Attributes:
        wait_s: seconds that the iterating thread waited for batches.
    """

    def __init__(
        self,
        sampler: BatchSampler,
        batches: EpochBatches,
        buckets: Buckets,
        *,
        seeds_of: SeedsOf | None = None,
        prefetch: Prefetch | None = None,
        gather: Gather | None = None,
        transfer: Transfer | None = None,
        num_shards: int | None = None,
        local_shards: range | None = None,
        cut: Cut | None = None,
    ) -> None:
        """
        Args:
            sampler: of a plan whose seed types are those that `seeds_of` gives.
            batches: the examples by epoch and step.
            buckets: capacities of one shard.
            seeds_of: gives the seeds by type, from the examples of a shard, int32 with `PADDING`, and the number of the
                batch; None: the examples are the seeds, of the plan's only seed type.
            gather: called on a host thread with the blocks (NumPy), the examples and the number of the batch, for
                features and whatever else depends on them.
            transfer: called on a host thread with (blocks, gathered), such as `jax.device_put`; it must not block.
            num_shards: shards that the batch is cut into, one for each device, on a leading axis; None: it is not cut.
            local_shards: those that this process prepares; None: all of them.
            cut: from the global batch, int32 `[batch_size]`, to its shards, `[num_shards, share]`; None: in its order.

        Raises:
            InputError: several seed types without `seeds_of`, a batch size that the shards do not divide, or shards out
                of range.
        """
        if seeds_of is None:
            if len(sampler.plan.seed_types) != 1:
                raise InputError(f"a loader needs one seed type; the plan has {', '.join(sampler.plan.seed_types)}")
            (seed_type,) = sampler.plan.seed_types

            def seeds_of(ids: np.ndarray, _step: int) -> Mapping[str, np.ndarray]:
                return {seed_type: ids}

        if num_shards is not None and (num_shards < 1 or (cut is None and batches.batch_size % num_shards)):
            raise InputError(f"batch_size {batches.batch_size} does not divide over {num_shards} devices")
        shards = range(num_shards or 1) if local_shards is None else local_shards
        if len(shards) == 0 or shards[0] < 0 or shards[-1] >= (num_shards or 1):
            raise InputError(f"shards {shards} are not among {num_shards or 1}")
        self.sampler, self.batches, self.buckets = sampler, batches, buckets
        self.prefetch = prefetch or Prefetch()
        self._seeds_of, self._gather, self._transfer = seeds_of, gather, transfer
        self._num_shards, self._shards = num_shards, shards
        self._cut = cut or (lambda ids: ids.reshape(num_shards or 1, -1))
        self.wait_s = 0.0

    def iterate(self, start: Cursor | None = None, stop: Cursor | None = None) -> Iterator[Batch]:
        """Batches from `start` up to `stop`, which is not included (None: without end).

        Closing the iterator, or leaving its `for` loop by an exception, ends every thread that it started before
        anything else runs.

        Raises:
            LoaderError: a batch failed, in its turn; the cause is the exception of its thread.
            InputError: `start` is not a batch of these epochs.
        """
        cursor = start or Cursor()
        if cursor.epoch < 0 or not 0 <= cursor.step < self.batches.steps_per_epoch:
            raise InputError(
                f"cursor {cursor} is no batch of epochs with {self.batches.steps_per_epoch} steps;"
                " was the batch size or the split changed?"
            )
        return self._iterate(self._tasks(cursor, stop))

    def _tasks(self, cursor: Cursor, stop: Cursor | None) -> Iterator[tuple[Cursor, np.ndarray]]:
        order, epoch = np.zeros(0, np.int64), -1
        while stop is None or cursor < stop:
            if epoch != cursor.epoch:
                epoch, order = cursor.epoch, self.batches.order(cursor.epoch)
            yield cursor, self.batches.batch(order, cursor.step)
            cursor = self.batches.following(cursor)

    def _iterate(self, tasks: Iterator[tuple[Cursor, np.ndarray]]) -> Iterator[Batch]:
        if self.prefetch.threads == 0:
            for cursor, ids in tasks:
                started = time.perf_counter()
                try:
                    batch = self._prepare(cursor, ids)
                except Exception as error:
                    raise _failed(cursor) from error
                self.wait_s += time.perf_counter() - started
                yield batch
            return
        executor = ThreadPoolExecutor(self.prefetch.threads, thread_name_prefix="jhgnn-loader")
        pending: collections.deque[tuple[Cursor, Future[Batch]]] = collections.deque()
        largest_bytes = 0

        def top_up() -> None:
            for task in itertools.islice(tasks, max(0, self._depth(largest_bytes) - len(pending))):
                pending.append((task[0], executor.submit(self._prepare, *task)))

        try:
            top_up()
            while pending:
                cursor, future = pending.popleft()
                started = time.perf_counter()
                try:
                    batch = future.result()
                except Exception as error:
                    raise _failed(cursor) from error
                self.wait_s += time.perf_counter() - started
                del future  # else the batch in use would be held twice over
                largest_bytes = max(largest_bytes, _nbytes(batch))
                top_up()  # before training uses this one
                yield batch
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _depth(self, largest_bytes: int) -> int:
        """Batches ahead; one until the first has shown how large they are, where bytes are bounded."""
        if self.prefetch.max_bytes is None:
            return self.prefetch.depth
        if largest_bytes == 0:
            return 1
        return max(1, min(self.prefetch.depth, self.prefetch.max_bytes // largest_bytes))

    def _prepare(self, cursor: Cursor, ids: np.ndarray) -> Batch:
        step = self.batches.global_step(cursor)
        own = ids
        if self._num_shards is not None:
            own = self._cut(ids)[self._shards.start : self._shards.stop]
        # Annotations are for jhgnn.profile; without a trace they cost less than a microsecond.
        started = time.perf_counter()
        with jax.profiler.TraceAnnotation("SAMPLE"):
            blocks, bucket = self._sample(ids, step)
        sampled = time.perf_counter()
        inputs = None
        if self._gather is not None:
            with jax.profiler.TraceAnnotation("GATHER"):
                inputs = self._gather(blocks, ids, step)
        gathered = time.perf_counter()
        if self._transfer is not None:
            with jax.profiler.TraceAnnotation("LOAD"):
                blocks, inputs = self._transfer((blocks, inputs))
        return Batch(
            cursor=cursor,
            following=self.batches.following(cursor),
            step=step,
            ids=own,
            blocks=blocks,
            inputs=inputs,
            bucket=bucket,
            sample_s=sampled - started,
            gather_s=gathered - sampled,
            transfer_s=time.perf_counter() - gathered,
        )

    def _sample(self, ids: np.ndarray, step: int) -> tuple[SampledBlocks, int]:
        """Blocks of a batch, and the bucket that holds them."""
        if self._num_shards is None:
            return self.sampler.sample(self._seeds_of(ids, step), self.batches.seed, step, self.buckets)
        cut = self._cut(ids)
        shards = [self._seeds_of(cut[shard], step) for shard in self._shards]
        elsewhere = [self._seeds_of(cut[shard], step) for shard in range(self._num_shards) if shard not in self._shards]
        if len(self.buckets.capacities) == 1:
            elsewhere = []
        return self.sampler.sample_shards(shards, self.batches.seed, step, self.buckets, elsewhere)


def _failed(cursor: Cursor) -> LoaderError:
    return LoaderError(f"the batch at epoch {cursor.epoch}, step {cursor.step} could not be prepared")


def _nbytes(batch: Batch) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves((batch.blocks, batch.inputs)) if hasattr(leaf, "nbytes"))
