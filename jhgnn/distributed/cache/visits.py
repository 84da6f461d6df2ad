"""Visits of the coming epoch, exactly: sampling is stateless, so the batches that will be drawn can be drawn before."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.epoch import Cursor, EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import SeedsOf

_LEARNED_FROM = 4


def epoch_accesses(
    sampler: HostSampler,
    batches: EpochBatches,
    seed: int,
    epoch: int,
    steps: int | None = None,
    seeds_of: SeedsOf | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """The input rows that each step of an epoch fetches: node type -> distinct ids, int32 ascending.

    They are those of training with these batches and this seed. A type that a step does not read is absent.

    Args:
        sampler: of the run's plan.
        batches: of the run.
        seed: of the run's draws.
        epoch: from 0.
        steps: stop after this many; None for all of the epoch.
        seeds_of: from examples and the number of their batch to their seeds by type; None: the examples are the seeds,
            of the plan's only seed type.
    """
    order = batches.order(epoch)

    def seeds(step: int) -> Mapping[str, np.ndarray]:
        ids, number = batches.batch(order, step), batches.global_step(Cursor(epoch, step))
        if seeds_of is not None:
            return seeds_of(ids, number)
        (target,) = sampler.plan.seed_types
        return {target: ids}

    num_steps = batches.steps_per_epoch if steps is None else min(steps, batches.steps_per_epoch)
    first = [seeds(step) for step in range(min(_LEARNED_FROM, num_steps))]
    buckets = presampled(sampler, seed, first)
    for step in range(num_steps):
        number = batches.global_step(Cursor(epoch, step))
        blocks, _ = sampler.sample(seeds(step), seed, number, buckets)
        found = {node_type: np.sort(ids[ids >= 0]) for node_type, ids in blocks.nodes.items()}
        yield {node_type: ids for node_type, ids in found.items() if len(ids)}


def count_visits(accesses: Iterable[Mapping[str, np.ndarray]], num_nodes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """How many steps fetch each row: node type -> int64 `[num_nodes]`."""
    visits = {node_type: np.zeros(count, np.int64) for node_type, count in num_nodes.items()}
    for step in accesses:
        for node_type, ids in step.items():
            visits[node_type][ids] += 1
    return visits
