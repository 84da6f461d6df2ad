"""Rows that a cache may keep, what each is worth, and what a set of them saves."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class TypeRows:
    """The rows of one node type.

    Attributes:
        visits: `[num_rows]`, how often each row is fetched, of at least 0; expected, or known: see `visits.py`.
        row_bytes: of a row in the cache; a learnable row with the moments of its optimizer.
        byte_s: seconds that a missed byte costs; for a learnable row the way back as well.

    Raises:
        InputError: a count of visits is negative or not finite, a row has no bytes, or a cost is negative.
    """

    visits: np.ndarray
    row_bytes: int
    byte_s: float

    def __post_init__(self) -> None:
        if self.visits.ndim != 1 or not np.isfinite(self.visits).all() or (self.visits < 0).any():
            raise InputError(f"visits of a cache have shape {self.visits.shape}; need one count of at least 0 a row")
        if self.row_bytes < 1 or not 0 <= self.byte_s < np.inf:
            raise InputError(f"rows of {self.row_bytes} bytes at {self.byte_s} s a byte; need at least 1 byte and 0 s")

    @property
    def values(self) -> np.ndarray:
        """Seconds that keeping each row saves, float64 `[num_rows]`."""
        return self.visits * (self.row_bytes * self.byte_s)

    def hottest(self, count: int) -> np.ndarray:
        """The rows visited most, at most `count`, int64 ascending; ties go to lower ids."""
        return np.sort(np.argsort(-self.visits, kind="stable")[: max(0, count)])


Rows = Mapping[str, TypeRows]


@dataclasses.dataclass(frozen=True, eq=False)
class Admission:
    """Which rows a cache keeps.

    Attributes:
        policy: that chose them.
        budget_bytes: it had.
        ids: node type -> int64 ids, ascending.
        exact: whether no other choice within the budget saves more; only `knapsack` knows.
    """

    policy: str
    budget_bytes: int
    ids: Mapping[str, np.ndarray]
    exact: bool = False

    def used_bytes(self, rows: Rows) -> int:
        return sum(len(ids) * rows[node_type].row_bytes for node_type, ids in self.ids.items())

    def saved_s(self, rows: Rows) -> float:
        """Seconds of misses that the rows kept save."""
        return float(sum(rows[node_type].values[ids].sum() for node_type, ids in self.ids.items()))


def miss_cost_s(rows: Rows) -> float:
    """Seconds of misses without a cache."""
    return float(sum(each.values.sum() for each in rows.values()))


def total_bytes(rows: Rows) -> int:
    """Bytes of all rows: the budget that keeps everything."""
    return sum(len(each.visits) * each.row_bytes for each in rows.values())


def check_budget(budget_bytes: int) -> None:
    """Raises InputError where a budget is negative."""
    if budget_bytes < 0:
        raise InputError(f"a cache got a budget of {budget_bytes} bytes; need at least 0")
