"""In which order to multiply a metapath's relations: matrix chain ordering by expected sizes, never by building."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy import sparse

from jhgnn.graph.metapath_product import expected_distinct, product_cost, row_sums

Order: TypeAlias = "int | tuple[Order, Order]"
"""A factor by position, or the product of two orders."""


class ChainPlan:
    """Sizes and the cheapest order of the product `factors[0] @ ... @ factors[-1]`.

    Args:
        factors: the matrices, receivers as rows; at least one.
        mirrored: the chain equals its own transpose and has an even length: its halves are each other's transposes.
        at_hand: whether the sub-product `factors[i..j]` (inclusive) is held already, and so costs nothing.
    """

    def __init__(
        self,
        factors: Sequence[sparse.csr_array],
        *,
        mirrored: bool = False,
        at_hand: Callable[[int, int], bool] = lambda i, j: i == j,
        max_bytes: float = np.inf,
    ) -> None:
        self.factors = list(factors)
        self._mirrored = mirrored
        self._at_hand = at_hand
        self._max_bytes = max_bytes
        self._bounds: dict[tuple[int, int], np.ndarray] = {}
        self._rows: dict[tuple[int, int], np.ndarray] = {}
        self._columns: dict[tuple[int, int], np.ndarray] = {}
        self._best: dict[tuple[int, int], tuple[float, Order]] = {}

    @property
    def length(self) -> int:
        return len(self.factors)

    def row_bounds(self, i: int, j: int) -> np.ndarray:
        """An upper bound of the neighbours of each row of `factors[i..j]`: its instances, at most the reached columns.

        Float64 `[num_rows]`, by one pass over the edges of each factor.
        """
        if (i, j) not in self._bounds:
            if i == j:
                bounds = np.diff(self.factors[i].indptr).astype(np.float64)
            else:
                last = self.factors[j]
                width = min(last.shape[1], last.nnz)
                bounds = np.minimum(row_sums(self.factors[i], self.row_bounds(i + 1, j)), width)
            self._bounds[i, j] = bounds
        return self._bounds[i, j]

    def edge_bound(self, i: int, j: int) -> float:
        return float(self.row_bounds(i, j).sum())

    def order(self) -> Order:
        """The cheapest order by the cost model of `metapath_product`."""
        if self.length <= 2:  # nothing to choose: spares a small product more than it costs itself
            return 0 if self.length == 1 else (0, 1)
        return self._cheapest(0, self.length - 1)[1]

    def seconds(self) -> float:
        """What the cost model expects of `order`: good for comparing with a budget, not for reporting."""
        return self._cheapest(0, self.length - 1)[0]

    def peak_intermediate_edges(self, order: Order) -> float:
        """An upper bound of the edges that sub-products of this order hold together (the whole product left out)."""
        return sum(self.edge_bound(i, j) for i, j in self._inner_spans(order) if not self._at_hand(i, j))

    def _inner_spans(self, order: Order) -> list[tuple[int, int]]:
        if isinstance(order, int):
            return []
        spans = []
        for half in order:
            if not isinstance(half, int):
                spans += [span(half), *self._inner_spans(half)]
        return spans

    def _cheapest(self, i: int, j: int) -> tuple[float, Order]:
        if i == j:
            return 0.0, i
        if (i, j) not in self._best:
            self._best[i, j] = min(
                (self._split(i, middle, j) for middle in range(i, j)), key=lambda candidate: candidate[0]
            )
        return self._best[i, j]

    def _split(self, i: int, middle: int, j: int) -> tuple[float, Order]:
        left_s, left = self._cheapest(i, middle)
        right_s, right = self._cheapest(middle + 1, j)
        if self._at_hand(i, middle):
            left_s = 0.0
        # The right half of a mirrored chain is the transpose of the left one: a counting sort, taken as free.
        if self._at_hand(middle + 1, j) or (self._mirrored and i == 0 and j == self.length - 1 and 2 * middle + 1 == j):
            right_s = 0.0
        # Not a BLAS dot: waking its threads for a short vector took 4 ms where cores are shared, this takes 20 us.
        flops = float((self._column_sizes(i, middle) * self._row_sizes(middle + 1, j)).sum())
        cost = product_cost(
            self.factors[i].shape[0],
            self.factors[middle].shape[1],
            self.factors[j].shape[1],
            float(self._row_sizes(i, middle).sum()),
            flops,
            float(self._row_sizes(i, j).sum()),
            self._max_bytes,
        )
        return left_s + right_s + cost.seconds, (left, right)

    def _row_sizes(self, i: int, j: int) -> np.ndarray:
        """Expected neighbours of each row of `factors[i..j]`, as if columns were drawn at random."""
        if (i, j) not in self._rows:
            if i == j:
                self._rows[i, j] = np.diff(self.factors[i].indptr).astype(np.float64)
            else:
                draws = row_sums(self.factors[i], self._row_sizes(i + 1, j))
                self._rows[i, j] = expected_distinct(draws, self.factors[j].shape[1])
        return self._rows[i, j]

    def _column_sizes(self, i: int, j: int) -> np.ndarray:
        if (i, j) not in self._columns:
            last = self.factors[j]
            weights = None
            if i != j:
                weights = np.repeat(self._column_sizes(i, j - 1), np.diff(last.indptr))
            draws = np.bincount(last.indices, weights, minlength=last.shape[1]).astype(np.float64)
            self._columns[i, j] = draws if i == j else expected_distinct(draws, self.factors[i].shape[0])
        return self._columns[i, j]


def span(order: Order) -> tuple[int, int]:
    """First and last factor of an order."""
    first = last = order
    while not isinstance(first, int):
        first = first[0]
    while not isinstance(last, int):
        last = last[1]
    return first, last
