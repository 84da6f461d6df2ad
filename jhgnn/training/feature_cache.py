"""Chooses the rows that stay in fast memory, where features or tables are in files: by visits known in advance."""

import time
from collections.abc import Collection, Mapping

import jax
import numpy as np

from jhgnn.config import SamplingConfig
from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.rows import Admission, TypeRows
from jhgnn.distributed.cache.visits import count_visits, epoch_accesses
from jhgnn.errors import InputError
from jhgnn.graph.erased import ids_of_type
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.loader import SeedsOf
from jhgnn.stores.cached import CachedRows
from jhgnn.stores.file_rows import is_mapped, rows_of
from jhgnn.stores.host import HostRows
from jhgnn.training.sampled_choices import Sampling

COSTED_ROWS = 2_048


def admitted_rows(
    sampling: Sampling,
    settings: SamplingConfig,
    batches: EpochBatches,
    seeds_of: SeedsOf,
    records: Mapping[str, np.ndarray],
) -> Admission:
    """The rows that the first epoch reads most, by seconds saved a byte: of features in files, and of mapped tables.

    Args:
        sampling: its features, and how batches are drawn.
        settings: `cache` bytes; `cache_steps` batches are drawn, 0 for all of the epoch.
        batches: of training.
        seeds_of: from examples and the number of their batch to their seeds by type.
        records: of mapped embedding tables; see `TieredRows`.

    Raises:
        InputError: no features are rows of a file, and no tables are mapped.
    """
    tables = _mapped(sampling.features.read_at_random())
    if not tables and not records:
        raise InputError(
            f"sampling.cache = {settings.cache} bytes keeps rows of files in memory, but all features are in memory"
            " already; leave it out, or train on a graph that `jhgnn.data.save_graph` wrote, with dense features"
        )
    sampler = HostSampler(sampling.sampled, sampling.plan, settings.threads)
    try:
        steps = settings.cache_steps or None
        drawn = epoch_accesses(sampler, batches, batches.seed, 0, steps, seeds_of=seeds_of)
        sizes = {name: len(own) for name, own in (*tables.items(), *records.items())}
        visits = count_visits((_by_type(read, sizes, sampling.offsets) for read in drawn), sizes)
    finally:
        sampler.close()
    return admission(tables, records, visits, settings.cache)


def admission(
    tables: Mapping[str, np.ndarray],
    records: Mapping[str, np.ndarray],
    visits: Mapping[str, np.ndarray],
    budget_bytes: int,
) -> Admission:
    """The rows that save most within a budget, of feature tables and of records of embedding tables together."""
    rows = {}
    for own, row_s in ((tables, row_read_s), (records, row_update_s)):
        for name, table in own.items():
            row_bytes = max(1, table.nbytes // max(1, len(table)))
            rows[name] = TypeRows(visits[name].astype(np.float64), row_bytes, row_s(table) / row_bytes)
    return knapsack(rows, budget_bytes)


def with_kept_rows(features: HostRows, kept: Admission) -> HostRows:
    """The features, with the rows of their types that are admitted in memory of their own."""
    ids = {name: own for name, own in kept.ids.items() if name in _mapped(features)}
    return CachedRows(features.tables, ids) if ids else features


def _mapped(features: HostRows) -> dict[str, np.ndarray]:
    """The tables that are rows of files; the others are in memory already."""
    return {
        name: table for name, table in features.tables.items() if isinstance(table, np.ndarray) and is_mapped(table)
    }


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
    ids = _costed(table)
    start = time.perf_counter()
    rows_of(table, ids)
    return (time.perf_counter() - start) / max(1, len(ids))


def row_update_s(records: np.ndarray) -> float:
    """Seconds to bring a record to the device and back to its file, measured as `row_read_s` does; none changes."""
    ids = _costed(records)
    jax.block_until_ready(jax.device_put(np.zeros((len(ids), *records.shape[1:]), records.dtype)))  # what comes first
    start = time.perf_counter()
    placed = jax.block_until_ready(jax.device_put(rows_of(records, ids)))
    records[ids] = np.asarray(placed)
    return (time.perf_counter() - start) / max(1, len(ids))


def _costed(table: np.ndarray) -> np.ndarray:
    """As many ids of every type, some more than once where there are few rows: what a call costs is none of a row's."""
    return np.linspace(0, len(table) - 1, COSTED_ROWS if len(table) else 0).astype(np.int32)
