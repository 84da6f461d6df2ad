"""Evaluates the matrix products of metapaths: in the planned order, reusing halves and shared sub-products.

Where the sub-products of the best order would not fit in memory, blocks of rows go through the whole chain instead.
"""

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from jhgnn.graph.factors import Chain, Factors
from jhgnn.graph.metapath_plan import ChainPlan, Order, span
from jhgnn.graph.metapath_product import count_product, multiply, row_block_bounds, stack, transpose

BYTES_PER_STORED_EDGE = 5
"""Of a sub-product: int32 index and bool."""

_BLOCK_EDGES = 2**25


class ChainProducts:
    """Products of chains of one graph's factors.

    Args:
        limit_bytes: sub-products held at once stay within half of it, kept ones within a quarter.
    """

    def __init__(self, factors: Factors, *, limit_bytes: float) -> None:
        self.factors = factors
        self.limit_bytes = limit_bytes
        self._wanted: frozenset[Chain] = frozenset()
        self._kept: dict[Chain, sparse.csr_array] = {}
        self._kept_edges = 0

    def keep(self, wanted: frozenset[Chain]) -> None:
        """Names sub-chains worth keeping once computed, because several metapaths have them."""
        self._wanted = wanted

    def plan(self, chain: Chain) -> ChainPlan:
        return ChainPlan(
            [self.factors.matrix(key) for key in chain],
            mirrored=len(chain) % 2 == 0 and self.is_symmetric(chain),
            at_hand=lambda i, j: self._held(chain[i : j + 1], self._kept) is not None,
            max_bytes=self.limit_bytes,
        )

    def is_symmetric(self, chain: Chain) -> bool:
        """Whether the product is known to equal its transpose: its relations read the same both ways."""
        return chain == self.factors.mirrored(chain)

    def fits(self, plan: ChainPlan, order: Order) -> bool:
        """Whether the sub-products of this order surely fit."""
        return plan.peak_intermediate_edges(order) * BYTES_PER_STORED_EDGE <= self.limit_bytes / 2

    def product(self, chain: Chain, plan: ChainPlan, max_edges: float) -> sparse.csr_array:
        """The product, rows unsorted unless flagged.

        Raises:
            ProductTooLargeError: it has over `max_edges` edges.
        """
        order = plan.order()
        if self.fits(plan, order):
            return self._evaluate(chain, order, dict(self._kept), max_edges)
        whole = plan.factors[0].shape[0], plan.factors[-1].shape[1], plan.factors[0].dtype
        return stack(_row_blocks(plan, self.limit_bytes), max_edges, *whole)

    def count(self, chain: Chain, plan: ChainPlan, order: Order) -> int:
        """Edges of the boolean product, exactly, without holding it; sub-products must fit."""
        if isinstance(order, int):
            return int(plan.factors[0].nnz)
        known = dict(self._kept)
        held = self._held(chain, known)
        if held is not None:
            return int(held.nnz)
        left, right = (self._evaluate(chain, half, known, np.inf) for half in order)
        return count_product(left, right, self.limit_bytes)

    def _evaluate(
        self, chain: Chain, order: Order, known: dict[Chain, sparse.csr_array], max_edges: float
    ) -> sparse.csr_array:
        i, j = span(order)
        part = chain[i : j + 1]
        if isinstance(order, int):
            return self.factors.matrix(chain[order])
        held = self._held(part, known)
        if held is not None:
            return held
        left, right = (self._evaluate(chain, half, known, np.inf) for half in order)
        product = multiply(left, right, max_edges=max_edges, max_bytes=self.limit_bytes)
        known[part] = product
        if part in self._wanted and self._kept_edges + product.nnz <= self.limit_bytes / 4 / BYTES_PER_STORED_EDGE:
            self._kept[part] = product
            self._kept_edges += product.nnz
        return product

    def _held(self, part: Chain, known: dict[Chain, sparse.csr_array]) -> sparse.csr_array | None:
        if part in known:
            return known[part]
        back = self.factors.mirrored(part)
        if back in known:
            known[part] = transpose(known[back])
            return known[part]
        return None


def shared_chains(factors: Factors, chains: list[Chain]) -> frozenset[Chain]:
    """Sub-chains of two factors or more that several of these chains have, either way round."""
    owners: dict[Chain, set[int]] = {}
    for owner, chain in enumerate(chains):
        for i in range(len(chain)):
            for j in range(i + 2, len(chain) + 1):
                part = chain[i:j]
                owners.setdefault(part, set()).add(owner)
                owners.setdefault(factors.mirrored(part), set()).add(owner)
    return frozenset(part for part, having in owners.items() if len(having) > 1)


def rows_of_chain(plan: ChainPlan, rows: slice | np.ndarray) -> sparse.csr_array:
    """These rows of the whole product: memory by the rows taken, not by the graph."""
    block = plan.factors[0][rows]
    for factor in plan.factors[1:]:
        block = block @ factor
    return block


def _row_blocks(plan: ChainPlan, limit_bytes: float) -> Iterator[sparse.csr_array]:
    widest = row_peaks(plan)
    most = min(_BLOCK_EDGES, max(2**12, limit_bytes / 64))
    bounds = row_block_bounds(np.cumsum(widest), most)
    for start, stop in itertools.pairwise(bounds):
        yield rows_of_chain(plan, slice(int(start), int(stop)))


def row_peaks(plan: ChainPlan) -> np.ndarray:
    """An upper bound of the edges that each row's products hold on their way through the chain, `[num_rows]`."""
    return np.sum([plan.row_bounds(0, j) for j in range(plan.length)], axis=0)
