"""Rows of hot vertices: the mean over all neighbours of each, computed once, kept behind the rows of their type."""

import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.sampling.native import gather_rows
from jhgnn.stores.host import HostRows

RUN_EDGES = 256  # summed in the rows' dtype before float64 takes over, as the kernels do: rounding grows with a run
CHUNK_EDGES = 2**20


class HotRows(HostRows):
    """A `RowStore` whose ids from a type's number of nodes on are means that are kept.

    Attributes:
        means: dense rows by node type, `[means, width]`, in the dtype of its table.
    """

    def __init__(self, tables: Mapping[str, Any], means: Mapping[str, np.ndarray]) -> None:
        super().__init__(tables)
        self.means = dict(means)
        self._joined: dict[str, Any] | None = None

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(rows.nbytes for rows in self.means.values())

    def gather(self, node_type: str, ids: np.ndarray) -> Any:
        """See `RowStore`; NumPy, zeros where an id is -1."""
        if node_type not in self.means:
            return super().gather(node_type, ids)
        first = self._first(node_type)
        kept = np.asarray(ids) >= first
        rows = super().gather(node_type, np.where(kept, -1, ids))
        rows[kept] = gather_rows(self.means[node_type], (ids[kept] - first).astype(np.int32))
        return rows

    def _first(self, node_type: str) -> int:
        """The id of a type's first mean."""
        table = self.tables[node_type]
        assert isinstance(table, np.ndarray)
        return len(table)

    def joined(self) -> dict[str, Any]:
        """The tables with their means behind them, for devices that hold them whole; made once."""
        if self._joined is None:
            own = {name: np.concatenate([self.tables[name], rows]) for name, rows in self.means.items()}
            self._joined = self.tables | own
        return self._joined


def neighbor_means(edges: EdgeSet, receivers: np.ndarray, table: np.ndarray, threads: int = 1) -> np.ndarray:
    """The mean of all neighbours' rows of some receivers, `[n, width]` in the table's dtype; parallel edges count.

    The result does not depend on the number of threads.

    Args:
        edges: in-edges of the relation.
        receivers: int32 `[n]`; each has a neighbour.
        table: rows of the senders, float32 or float64 `[num_nodes, width]`.
    """
    start, degrees = edges.indptr[receivers], np.diff(edges.indptr)[receivers]
    cuts = np.searchsorted(np.cumsum(degrees), np.arange(CHUNK_EDGES, int(degrees.sum()), CHUNK_EDGES))
    bounds = np.unique([0, *cuts, len(receivers)])
    out = np.empty((len(receivers), table.shape[1]), table.dtype)

    def fill(chunk: tuple[int, int]) -> None:
        own = slice(*chunk)
        out[own] = _means(edges.senders, start[own], degrees[own], table)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, itertools.pairwise(bounds)))
    return out


def _means(senders: np.ndarray, start: np.ndarray, degrees: np.ndarray, table: np.ndarray) -> np.ndarray:
    within = np.arange(degrees.sum()) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    indices = senders[np.repeat(start, degrees) + within]
    runs = -(-degrees // RUN_EDGES)
    first_run = np.cumsum(runs) - runs
    before = np.cumsum(degrees) - degrees
    of_run = np.arange(runs.sum()) - np.repeat(first_run, runs)
    indptr = np.append(np.repeat(before, runs) + of_run * RUN_EDGES, len(indices))
    ones = np.ones(len(indices), table.dtype)
    sums = sparse.csr_array((ones, indices, indptr.astype(np.int32)), shape=(len(indptr) - 1, len(table))) @ table
    totals = np.add.reduceat(sums.astype(np.float64), first_run, axis=0)
    return (totals / degrees[:, None]).astype(table.dtype)
