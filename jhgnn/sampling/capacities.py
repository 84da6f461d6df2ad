"""Capacities: how many slots a mini-batch's arrays have for each hop and node type, learnt by sampling before training.

A compiled program needs fixed shapes, so there is a program for each of a few *buckets* of capacities. A batch goes to
the smallest bucket that holds it, and the last one holds any batch. So a large batch costs time, but never loses a
node, and compiles nothing new.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.sampled import FrozenCounts, SampledBlocks
from jhgnn.sampling.plan import Capacities, SamplingPlan

if TYPE_CHECKING:
    from jhgnn.sampling.host import HostSampler
    from jhgnn.sampling.reuse import TurnSampler
    from jhgnn.sampling.temporal import TemporalSampler

QUANTILES = (0.9, 1.0)
SLACK = 1.05  # on the largest batch met in pre-sampling, which is not the largest of an epoch
MULTIPLE = 64


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Capacities from the smallest to one that always suffices."""

    capacities: tuple[Capacities, ...]

    def choose(self, plan: SamplingPlan, added: np.ndarray) -> int:
        """The first bucket that holds a batch, each of whose hops adds so many slots, `[num_hops + 1, types]`.

        Raises:
            ValueError: none does: the batch has more seeds than the buckets were made for.
        """
        for index, capacities in enumerate(self.capacities):
            if (added <= room(plan, capacities)).all():
                return index
        raise ValueError(
            f"no bucket of {len(self.capacities)} holds a batch of {int(added[0].sum())} seeds;"
            f" the largest takes {dict(self.capacities[-1][0].items)}"
        )


def cumulative(plan: SamplingPlan, capacities: Capacities) -> np.ndarray:
    """Capacities as int64 `[num_hops + 1, types]`."""
    return np.array([[counts.get(name) for name in plan.node_types] for counts in capacities], np.int64)


def room(plan: SamplingPlan, capacities: Capacities) -> np.ndarray:
    """Slots that each hop may add, int64 `[num_hops + 1, types]`."""
    return np.diff(cumulative(plan, capacities), axis=0, prepend=0)


def fixed(capacities: Capacities) -> Buckets:
    """One bucket."""
    return Buckets((capacities,))


def presampled(
    sampler: "HostSampler | TurnSampler | TemporalSampler",
    seed: int,
    batches: Iterable[Mapping[str, np.ndarray]],
    *,
    quantiles: Sequence[float] = QUANTILES,
    slack: float = SLACK,
) -> Buckets:
    """Buckets learnt from some batches, and one more that holds any batch.

    A bucket has the capacity of a quantile, over the batches, of the slots that each hop adds of each type.

    Args:
        batches: seeds of full size, as the sampler takes them; batch i is drawn as step i.
        quantiles: ascending, in (0, 1]; one or two of them.
        slack: factor on the quantiles.

    Raises:
        InputError: no batches, or quantiles or a slack out of range.
    """
    plan = sampler.plan
    if not quantiles or any(not 0 < q <= 1 for q in quantiles) or list(quantiles) != sorted(quantiles) or slack < 1:
        raise InputError(
            f"quantiles {tuple(quantiles)} and slack {slack}: need ascending quantiles in (0, 1], slack >= 1"
        )
    observed, seeds = [], None
    for step, batch in enumerate(batches):
        seeds = {name: len(batch[name]) for name in plan.seed_types}
        observed.append(sampler.count(batch, seed, step))
    if seeds is None:
        raise InputError("pre-sampling got no batches; it needs at least one to learn capacities from")
    bound = plan.bound_capacities(seeds)
    most = room(plan, bound)
    buckets = []
    for quantile in quantiles:
        added = np.ceil(np.quantile(np.stack(observed), quantile, axis=0) * slack)
        rounded = -(-added.astype(np.int64) // MULTIPLE) * MULTIPLE
        rounded = np.minimum(np.maximum(rounded, np.minimum(most, MULTIPLE)), most)
        rounded[0] = most[0]
        buckets.append(_of_room(plan, rounded))
    return Buckets(tuple(dict.fromkeys([*buckets, bound])))


def _of_room(plan: SamplingPlan, added: np.ndarray) -> Capacities:
    """Slots for batches whose hops add so many at most, int64 `[num_hops + 1, types]`."""
    slots = np.cumsum(added, axis=0)
    return tuple(FrozenCounts.of(dict(zip(plan.node_types, map(int, row), strict=True))) for row in slots)


def tight(plan: SamplingPlan, added: np.ndarray, num_seeds: Mapping[str, int]) -> Buckets:
    """One bucket for batches whose hops add so many slots at most; a slot at least where any may be met."""
    return fixed(_of_room(plan, np.maximum(added, np.minimum(room(plan, plan.bound_capacities(num_seeds)), 1))))


def padding_waste(blocks: SampledBlocks) -> dict[str, float]:
    """Shares of the blocks that are padding: of the slots (`slots`) and of the table entries (`entries`), in [0, 1]."""
    slots = sum(int(np.prod(ids.shape)) for ids in blocks.nodes.values())
    vertices = sum(int((np.asarray(ids) >= 0).sum()) for ids in blocks.nodes.values())
    tables = list(itertools.chain.from_iterable(tables.values() for tables in blocks.hops))
    entries = sum(int(np.prod(table.senders.shape)) for table in tables)
    neighbors = sum(int(np.asarray(table.num_neighbors).sum(dtype=np.int64)) for table in tables)
    return {"slots": 1.0 - vertices / max(1, slots), "entries": 1.0 - neighbors / max(1, entries)}
