"""Chooses the feature rows that a host keeps in memory, where features stay in files: by visits known in advance."""

import itertools
import time
from collections.abc import Iterable, Mapping

import numpy as np

from jhgnn.distributed.cache.knapsack import knapsack
from jhgnn.distributed.cache.rows import TypeRows
from jhgnn.distributed.cache.visits import count_visits
from jhgnn.errors import InputError
from jhgnn.sampling.native import gather_rows
from jhgnn.stores.cached import CachedRows, is_mapped
from jhgnn.stores.host import HostRows

COSTED_ROWS = 2_048


def cached_features(
    features: HostRows, budget_bytes: int, accesses: Iterable[Mapping[str, np.ndarray]], steps: int
) -> CachedRows:
    """The features with a fast tier of the rows that the coming steps read most, a second of reading saved a byte.

    Args:
        features: rows by node type.
        budget_bytes: of the fast tier.
        accesses: what each step of the coming epoch reads: node type -> distinct ids.
        steps: how many of them to look at; 0 for all.

    Raises:
        InputError: no features are rows of a file.
    """
    mapped = {
        name: table for name, table in features.tables.items() if isinstance(table, np.ndarray) and is_mapped(table)
    }
    if not mapped:
        raise InputError(
            f"sampling.cache = {budget_bytes} bytes keeps rows of files in memory, but all features are in memory"
            " already; leave it out, or train on a graph that `jhgnn.data.save_graph` wrote, with dense features"
        )
    counts = {name: len(table) for name, table in mapped.items()}
    looked_at = itertools.islice(accesses, steps or None)
    visits = count_visits(({name: step[name] for name in counts if name in step} for step in looked_at), counts)
    rows = {}
    for name, table in mapped.items():
        row_bytes = table.nbytes // max(1, len(table))
        rows[name] = TypeRows(visits[name].astype(np.float64), row_bytes, row_read_s(table) / row_bytes)
    admitted = knapsack(rows, budget_bytes)
    return CachedRows(features.tables, admitted.ids)


def row_read_s(table: np.ndarray) -> float:
    """Seconds to gather one row of a table, measured now on rows spread evenly over it."""
    ids = np.unique(np.linspace(0, len(table) - 1, min(len(table), COSTED_ROWS)).astype(np.int32))
    start = time.perf_counter()
    gather_rows(table, ids)
    return (time.perf_counter() - start) / max(1, len(ids))
