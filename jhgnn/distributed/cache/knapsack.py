"""Admission by expected visits x cost per byte over all types: the knapsack optimum."""

import math

import numpy as np

from jhgnn.distributed.cache.rows import Admission, Rows, check_budget

MOST_TRIED = 1 << 22
"""Ways to trade rows of one size for rows of another that are tried; enough for sizes of up to 700 units of three."""


def knapsack(rows: Rows, budget_bytes: int) -> Admission:
    """Keeps the rows worth most a byte, and trades the last ones so that the budget is used best.

    Rows are ranked by visits x seconds a byte, over all types, and kept from the top. That is the best there is where
    all rows are of one size. With several sizes the best set differs from the ranking by few rows: at most 2 u + 2 of
    them, where u is the largest size in units of what divides all sizes. So all trades of that reach between the sizes
    are tried, as long as they are at most `MOST_TRIED`; `exact` says whether they were. Where they are too many, the
    rows that fit are kept from the top, and what is lost is less than one row's worth.

    Args:
        rows: node type -> its rows. Rows never visited are left out.
        budget_bytes: of the cache.

    Raises:
        InputError: the budget is negative.

    Source: Eisenbrand and Weismantel, Proximity results and faster algorithms for integer programming, 2018.
    """
    check_budget(budget_bytes)
    types = list(rows)
    kind = np.repeat(np.arange(len(types)), [len(rows[name].visits) for name in types])
    ids = np.concatenate([np.arange(len(rows[name].visits)) for name in types] or [np.zeros(0, np.int64)])
    values = np.concatenate([rows[name].values for name in types] or [np.zeros(0)])
    sizes = np.array([rows[name].row_bytes for name in types], np.int64)[kind]
    wanted = np.flatnonzero(values > 0)
    # By falling worth a byte; the sort is stable, so equal rows stay in the order of types and ids.
    order = wanted[np.argsort(-(values[wanted] / sizes[wanted]), kind="stable")]
    kept, exact = _best(values[order], sizes[order], budget_bytes)
    chosen = order[kept]
    admitted = {
        name: np.sort(ids[chosen[kind[chosen] == number]]).astype(np.int64) for number, name in enumerate(types)
    }
    return Admission("knapsack", budget_bytes, admitted, exact)


def _best(values: np.ndarray, sizes: np.ndarray, budget: int) -> tuple[np.ndarray, bool]:
    """Positions to keep of rows that stand by falling worth a byte, and whether that is the optimum."""
    if int(sizes.sum()) <= budget:
        return np.arange(len(values)), True
    fitting = int(np.searchsorted(np.cumsum(sizes), budget, side="right"))
    distinct = np.unique(sizes)[::-1]
    # Within a size, rows worth most come first: a choice is a number of rows of each size.
    members = [np.flatnonzero(sizes == size) for size in distinct]
    taken = np.array([int(np.searchsorted(own, fitting)) for own in members])
    if len(distinct) == 1:
        return np.arange(fitting), True
    unit = math.gcd(*(int(size) for size in distinct))
    reach = 2 * int(distinct[0]) // unit + 2
    windows = [
        np.arange(max(0, count - reach), min(len(own), count + reach) + 1)
        for count, own in zip(taken[:-1], members[:-1], strict=True)
    ]
    if math.prod(len(window) for window in windows) > MOST_TRIED:
        return _from_the_top(sizes, budget, fitting), False
    worth = [np.concatenate([[0.0], np.cumsum(values[own])]) for own in members]
    counts = np.meshgrid(*windows, indexing="ij")
    spent = sum(each * int(size) for each, size in zip(counts, distinct[:-1], strict=True))
    last = np.minimum((budget - spent) // int(distinct[-1]), len(members[-1]))
    gained = sum(each[count] for each, count in zip(worth[:-1], counts, strict=True)) + worth[-1][np.maximum(last, 0)]
    gained = np.where(last >= 0, gained, -np.inf)
    best = np.unravel_index(int(np.argmax(gained)), gained.shape)
    final = [int(each[best]) for each in counts] + [int(last[best])]
    return np.concatenate([own[:count] for own, count in zip(members, final, strict=True)]), True


def _from_the_top(sizes: np.ndarray, budget: int, fitting: int) -> np.ndarray:
    """All that fit in one go, and then each further size as far as it fits."""
    kept = [np.arange(fitting)]
    left = budget - int(sizes[:fitting].sum())
    for size in np.unique(sizes)[::-1]:
        own = np.flatnonzero(sizes[fitting:] == size)[: left // int(size)] + fitting
        kept.append(own)
        left -= len(own) * int(size)
    return np.concatenate(kept)
