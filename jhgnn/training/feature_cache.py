"""Chooses the feature rows that a host keeps in memory, where features stay in files: by visits known in advance."""

import time
from collections.abc import Collection, Mapping

import numpy as np

from jhgnn.config import SamplingConfig
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.rows import TypeRows
from jhgnn.distributed.cache.visits import count_visits, epoch_accesses
from jhgnn.errors import InputError
from jhgnn.graph.erased import ids_of_type
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import SeedsOf
from jhgnn.sampling.native import gather_rows
from jhgnn.stores.cached import CachedRows, is_mapped
from jhgnn.stores.host import HostRows
from jhgnn.training.sampled_choices import Sampling

COSTED_ROWS = 2_048


def cached_features(
    sampling: Sampling, settings: SamplingConfig, batches: EpochBatches, seeds_of: SeedsOf
) -> CachedRows:
    """The features with a fast tier of the rows that the first epoch reads most, by seconds of reading saved a byte.

    Args:
        sampling: its features, and how batches are drawn.
        settings: `cache` bytes; `cache_steps` batches are drawn, 0 for all of the epoch.
        batches: of training.
        seeds_of: from examples and the number of their batch to their seeds by type.

    Raises:
        InputError: no features are rows of a file.
    """
    tables = _mapped(sampling.features, settings.cache)
    sampler = HostSampler(sampling.sampled, sampling.plan, settings.threads)
    try:
        steps = settings.cache_steps or None
        drawn = epoch_accesses(sampler, batches, batches.seed, 0, steps, seeds_of=seeds_of)
        visits = count_visits(
            (_by_type(read, tables, sampling.offsets) for read in drawn),
            {name: len(own) for name, own in tables.items()},
        )
    finally:
        sampler.close()
    return kept_rows(sampling.features, tables, visits, settings.cache)


def kept_rows(
    features: HostRows, tables: Mapping[str, np.ndarray], visits: Mapping[str, np.ndarray], budget_bytes: int
) -> CachedRows:
    """The features with the rows of some tables that save most, within a budget, in the fast tier."""
    rows = {}
    for name, table in tables.items():
        row_bytes = table.nbytes // max(1, len(table))
        rows[name] = TypeRows(visits[name].astype(np.float64), row_bytes, row_read_s(table) / row_bytes)
    return CachedRows(features.tables, knapsack(rows, budget_bytes).ids)


def _mapped(features: HostRows, budget_bytes: int) -> dict[str, np.ndarray]:
    """The tables that are rows of files; the others are in memory already."""
    found = {
        name: table for name, table in features.tables.items() if isinstance(table, np.ndarray) and is_mapped(table)
    }
    if not found:
        raise InputError(
            f"sampling.cache = {budget_bytes} bytes keeps rows of files in memory, but all features are in memory"
            " already; leave it out, or train on a graph that `jhgnn.data.save_graph` wrote, with dense features"
        )
    return found


def _by_type(
    read: Mapping[str, np.ndarray], tables: Collection[str], offsets: tuple[tuple[str, int, int], ...]
) -> dict[str, np.ndarray]:
    """The ids of each type that a step reads, also where its types are erased."""
    if not offsets:
        return {name: read[name] for name in tables if name in read}
    own = {name: ids_of_type(read, name, offsets) for name in tables}
    return {name: ids[ids >= 0] for name, ids in own.items()}


def row_read_s(table: np.ndarray) -> float:
    """Seconds to gather one row of a table, measured now on rows spread evenly over it."""
    ids = np.unique(np.linspace(0, len(table) - 1, min(len(table), COSTED_ROWS)).astype(np.int32))
    start = time.perf_counter()
    gather_rows(table, ids)
    return (time.perf_counter() - start) / max(1, len(ids))
