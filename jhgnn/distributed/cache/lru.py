"""What a cache that keeps the rows used last would save, over a recorded sequence of steps."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jhgnn.distributed.cache.rows import Rows, check_budget


def lru_saved_s(
    rows: Rows,
    steps: Iterable[Mapping[str, np.ndarray]],
    budgets_bytes: Sequence[int],
    count_from: int = 0,
) -> np.ndarray:
    """Seconds of misses that least-recently-used eviction saves, float64 `[budgets]`; see `lru_hits`."""
    hits = lru_hits(rows, steps, budgets_bytes, count_from)
    worth = {name: each.row_bytes * each.byte_s for name, each in rows.items()}
    return sum((worth[name] * own for name, own in hits.items()), np.zeros(len(budgets_bytes)))


def lru_hits(
    rows: Rows,
    steps: Iterable[Mapping[str, np.ndarray]],
    budgets_bytes: Sequence[int],
    count_from: int = 0,
) -> dict[str, np.ndarray]:
    """Rows that a cache with least-recently-used eviction had: node type -> int64 `[budgets]`.

    A step looks all of its rows up and then inserts them, types in the order of `rows` and ids in the order given, the
    last one being the most recent. What no longer fits is evicted from the least recent end, over all types.

    Args:
        rows: node type -> its rows. Their visits are not read.
        steps: node type -> distinct ids of each step, in order.
        budgets_bytes: of the cache, each simulated by itself.
        count_from: steps before this one only warm the cache up.

    Raises:
        InputError: a budget is negative.
    """
    for budget in budgets_bytes:
        check_budget(budget)
    budgets = np.asarray(budgets_bytes, np.int64)
    types = list(rows)
    hits = np.zeros((len(types), len(budgets)), np.int64)
    first = np.cumsum([0, *(len(rows[name].visits) for name in types)])
    per_type = np.diff(first)
    sizes = np.repeat([rows[name].row_bytes for name in types], per_type).astype(np.int64)
    most = int(budgets.max(initial=0))
    recent = np.zeros(0, np.int64)  # rows of all types, the most recent first, as far as the largest cache holds them
    used = np.zeros(int(first[-1]), bool)
    for step, accesses in enumerate(steps):
        now = np.concatenate(
            [np.zeros(0, np.int64), *(first[types.index(name)] + accesses[name] for name in types if name in accesses)]
        )
        used[now] = True
        if step >= count_from:
            # A cache holds the rows that fit with all those more recent than them.
            reached = np.cumsum(sizes[recent])
            met = recent[used[recent]]
            fitting = np.searchsorted(reached[used[recent]], budgets, side="right")
            for number in range(len(types)):
                of_type = (first[number] <= met) & (met < first[number + 1])
                hits[number] += np.concatenate([[0], np.cumsum(of_type)])[fitting]
        recent = np.concatenate([now[::-1], recent[~used[recent]]])
        used[now] = False
        recent = recent[: int(np.searchsorted(np.cumsum(sizes[recent]), most, side="right"))]
    return dict(zip(types, hits, strict=True))
