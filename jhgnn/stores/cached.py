"""Rows of files mapped into memory, with those visited most kept together in memory of their own."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from jhgnn.sampling.native import gather_rows
from jhgnn.stores.file_rows import rows_of
from jhgnn.stores.host import HostRows, HostTable


class CachedRows(HostRows):
    """`HostRows` with a fast tier of fixed size. What `gather` gives does not depend on which rows are kept.

    A row of a file is read with the page that it lies in, so memory that the system keeps files in holds as many rows
    that nobody asks for. The fast tier holds rows, one after the other, and no page of it is ever given back.

    Attributes:
        hits, misses: node type -> rows gathered so far from the fast tier, and from the tables.
    """

    def __init__(self, tables: Mapping[str, HostTable], kept: Mapping[str, np.ndarray]) -> None:
        """Reads the rows to keep.

        Args:
            tables: as `HostRows` takes them.
            kept: node type -> ids of rows, ascending; of dense tables alone. Types that are absent keep none.
        """
        super().__init__(tables)
        self._fast: dict[str, np.ndarray] = {}
        self._slots: dict[str, np.ndarray] = {}
        self._slow: dict[str, np.ndarray] = {}
        for node_type, ids in kept.items():
            table = self.tables[node_type]
            assert isinstance(table, np.ndarray)
            self._slow[node_type] = table
            self._slots[node_type] = np.full(len(table), -1, np.int32)
            self._slots[node_type][ids] = np.arange(len(ids), dtype=np.int32)
            self._fast[node_type] = rows_of(table, np.ascontiguousarray(ids, np.int32))
        self._counting = threading.Lock()
        self.hits, self.misses = dict.fromkeys(kept, 0), dict.fromkeys(kept, 0)

    @property
    def cached_bytes(self) -> int:
        """Of the rows in the fast tier."""
        return sum(rows.nbytes for rows in self._fast.values())

    def describe(self) -> str:
        """What is kept, for a person."""
        kept = ", ".join(f"{self.num_cached(name):,} of {len(self._slots[name]):,} {name}" for name in self.hits)
        return f"{self.cached_bytes / 2**20:.1f} MiB hold the rows of {kept}"

    def facts(self) -> dict[str, Any]:
        """Bytes of the fast tier, and by type the share of the rows gathered so far that it had."""
        rate = {name: self.hits[name] / max(1, self.hits[name] + self.misses[name]) for name in self.hits}
        return {"bytes": self.cached_bytes, "hit_rate": rate}

    def num_cached(self, node_type: str) -> int:
        """Rows of a type in the fast tier."""
        return len(self._fast.get(node_type, ()))

    def gather(self, node_type: str, ids: np.ndarray) -> Any:
        """See `RowStore`; NumPy, zeros where an id is -1."""
        if node_type not in self._fast:
            return super().gather(node_type, ids)
        flat = np.ascontiguousarray(ids, np.int32).reshape(-1)
        slots = self._slots[node_type].take(flat, mode="clip")
        slots[flat < 0] = -1
        rows = gather_rows(self._fast[node_type], slots)
        missing = np.flatnonzero((slots < 0) & (flat >= 0))
        table = self._slow[node_type]
        rows[missing] = rows_of(table, flat[missing])
        with self._counting:
            self.hits[node_type] += int(np.count_nonzero(slots >= 0))
            self.misses[node_type] += len(missing)
        return rows.reshape(*ids.shape, *table.shape[1:])
