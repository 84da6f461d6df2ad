"""The host sampler: native and multi-threaded, deduplicated, padded to a bucket of capacities.

It draws the same vertices into the same slots as `sample_on_device`, bit for bit.
"""

import dataclasses
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.sampled import PADDING, SampledBlocks
from jhgnn.sampling.block_arrays import block_arrays
from jhgnn.sampling.capacities import Buckets, cumulative
from jhgnn.sampling.native import NativeSampler
from jhgnn.sampling.plan import Capacities, SamplingPlan


class HostSampler:
    """Samples batches of one plan on the CPU. Safe to call from several threads, each of which gets its own buffers.

    A call's buffers hold about 3 bits for each vertex and hop, and the batch without padding. The next call uses them
    again.
    """

    def __init__(self, graph: HeteroGraph, plan: SamplingPlan, threads: int = 1) -> None:
        """`threads` work on each batch together.

        Raises:
            InputError: `threads` is below 1.
        """
        if threads < 1:
            raise InputError(f"a host sampler got {threads} threads; need at least 1")
        self.graph, self.plan, self.threads = graph, plan, threads
        self._idle: queue.SimpleQueue[NativeSampler] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._all: list[NativeSampler] = []

    def count(self, seeds: Mapping[str, np.ndarray], seed: int, step: int) -> np.ndarray:
        """The slots that each hop of a batch adds, int64 `[num_hops + 1, types]`: what capacities must hold."""
        with self._borrowed(1) as (native,):
            return native.sample(seed, step, self.checked(self.plan, seeds))

    def sample(
        self, seeds: Mapping[str, np.ndarray], seed: int, step: int, buckets: Buckets
    ) -> tuple[SampledBlocks, int]:
        """One batch as NumPy arrays, and the bucket that holds it.

        Args:
            seeds: type -> int32 ids `[n]`, `PADDING` for none; repeats are allowed; n is at most the bucket's.
            seed: in [0, 2**32).
            step: in [0, 2**32), the number of the batch since training began.

        Raises:
            ValueError: more seeds than the buckets take.
            InputError: a seed id out of range or a missing type.
        """
        with self._borrowed(1) as (native,):
            added = native.sample(seed, step, self.checked(self.plan, seeds))
            bucket = buckets.choose(self.plan, added)
            return self._emit([native], added[None], buckets.capacities[bucket], stacked=False), bucket

    def sample_shards(
        self,
        shards: Sequence[Mapping[str, np.ndarray]],
        seed: int,
        step: int,
        buckets: Buckets,
        elsewhere: Sequence[Mapping[str, np.ndarray]] = (),
    ) -> tuple[SampledBlocks, int]:
        """Several shards of one global batch in one bucket, every array with a leading `[shards]` axis, for `pmap`.

        A vertex draws the same neighbours in whichever shard it stands. Shards `elsewhere`, which are other processes',
        are drawn as well, but not written: the bucket has to hold them too, so that all processes choose the same one
        without an exchange.
        """
        with self._borrowed(len(shards)) as natives:
            most = [natives[0].sample(seed, step, self.checked(self.plan, own)) for own in elsewhere]
            added = np.stack(
                [
                    native.sample(seed, step, self.checked(self.plan, own))
                    for native, own in zip(natives, shards, strict=True)
                ]
            )
            bucket = buckets.choose(self.plan, np.max([*added, *most], axis=0))
            return self._emit(natives, added, buckets.capacities[bucket], stacked=True), bucket

    def close(self) -> None:
        """Ends all threads and frees all buffers; no call may be running."""
        with self._lock:
            for native in self._all:
                native.close()
            self._all.clear()
            self._idle = queue.SimpleQueue()

    @contextmanager
    def _borrowed(self, count: int) -> Iterator[list[NativeSampler]]:
        taken: list[NativeSampler] = []
        try:
            for _ in range(count):
                try:
                    taken.append(self._idle.get_nowait())
                except queue.Empty:
                    taken.append(NativeSampler(self.graph, self.plan, self.threads))
                    with self._lock:
                        self._all.append(taken[-1])
            yield taken
        finally:
            for native in taken:
                self._idle.put(native)

    @staticmethod
    def checked(plan: SamplingPlan, seeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Seeds of each of the plan's types, int32; none of types that have no seeds.

        Raises:
            InputError: an id is out of range, or a type is missing.
        """
        by_type = []
        for name in plan.node_types:
            if name not in plan.seed_types:
                by_type.append(np.zeros(0, np.int32))
                continue
            if name not in seeds:
                raise InputError(f"a batch has no seeds of type {name!r}; need {', '.join(plan.seed_types)}")
            ids = np.ascontiguousarray(seeds[name], np.int32)
            count = plan.num_nodes[name]
            if ids.size and (ids.min() < PADDING or ids.max() >= count):
                bad = int(ids[np.argmax((ids < PADDING) | (ids >= count))])
                raise InputError(
                    f"seed {bad} of type {name!r} is out of range; need 0 to {count - 1}, or -1 for padding"
                )
            by_type.append(ids)
        return by_type

    def _emit(
        self, natives: Sequence[NativeSampler], added: np.ndarray, capacities: Capacities, *, stacked: bool
    ) -> SampledBlocks:
        plan, num = self.plan, len(natives)

        def make(*shape: int, dtype: Any = np.int32) -> np.ndarray:
            return np.zeros((num, *shape), dtype) if np.dtype(dtype) == bool else np.empty((num, *shape), dtype)

        blocks = block_arrays(plan, capacities, make)
        nodes, hops = blocks.nodes, blocks.hops
        slots = cumulative(plan, capacities)
        flat = [tables.get(draw.name) for tables in hops for draw in plan.draws]
        for shard, native in enumerate(natives):
            native.emit(
                slots,
                [nodes[name][shard] if name in nodes else None for name in plan.node_types],
                [None if table is None else table.senders[shard] for table in flat],
                [None if table is None else table.num_neighbors[shard] for table in flat],
                [None if table is None or table.visits is None else table.visits[shard] for table in flat],
            )
        blocks = dataclasses.replace(blocks, added=added.astype(np.int32))
        return blocks if stacked else jax.tree.map(lambda array: array[0], blocks)
