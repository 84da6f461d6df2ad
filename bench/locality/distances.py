"""Reuse (stack) distances: how much else was read since an item was read last (Mattson et al., 1970).

A cache of any size that drops what was read longest ago holds an item exactly if that much and the item itself fit it.
So one pass over a trace tells the hit rate of every size. How many items are in between is a count of dominance: with
`p` the last access to the item of access `i`, the distinct items of accesses `p + 1 .. i - 1` are their first accesses
in that window, those whose own last access is before `p`. It is taken for all accesses at once, bit by bit of the
positions of last accesses, as in a wavelet tree: O(n log n) in NumPy.
"""

import numpy as np

COLD = -1
"""In the place of a distance: the item was not read before."""


def stack_distances(items: np.ndarray, sizes: np.ndarray | None = None, *, repeated: bool = False) -> np.ndarray:
    """What was read between each access and the one before it to the same item, each other item counted once.

    Args:
        items: `[accesses]` whole numbers from 0 on, in the order in which they are read.
        sizes: `[accesses]`, of the item that is read, in any unit, the same at each access; None: 1 each. For items of
            several cache lines, always read together, this is exact line by line.
        repeated: the trace is read again and again, and this is not the first time: no access is `COLD`.

    Returns:
        int64 `[accesses]`, in the unit of `sizes`; `COLD` at first accesses. Empty for an empty trace.
    """
    items = np.asarray(items)
    count = len(items)
    weights = np.ones(count, np.int64) if sizes is None else np.asarray(sizes, np.int64)
    order = np.argsort(items, kind="stable")
    again = items[order[1:]] == items[order[:-1]] if count else np.zeros(0, bool)
    last = np.full(count, -1, np.int64)
    last[order[1:][again]] = order[:-1][again]
    upto = np.cumsum(weights)
    warm = last >= 0
    distances = np.full(count, COLD, np.int64)
    distances[warm] = _earlier_smaller(last + 1, None if sizes is None else weights)[warm] - upto[last[warm]]
    if repeated and count:
        first_of = np.flatnonzero(~warm)  # ascending, one for each item
        ends = np.ones(count, bool)
        ends[:-1] = ~again
        final = np.empty(count, np.int64)
        starts = np.concatenate(([0], np.flatnonzero(ends)[:-1] + 1))
        final[order[starts]] = order[ends]
        finals, own = final[first_of], weights[first_of]
        # Not read between: what was last read before and is first read after it. Ranks keep the bits few.
        ranks = np.empty(len(finals), np.int64)
        ranks[np.argsort(finals)] = np.arange(len(finals))
        neither = _earlier_smaller(ranks[::-1], own[::-1])[::-1]
        distances[first_of] = own.sum() - own - neither
    return distances


def _earlier_smaller(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """For each place: the weights of earlier places with a smaller value, added up; int64.

    Values that agree in all higher bits stand together, in their order. Of two of them, the one with a zero in the next
    bit is the smaller.
    """
    count = len(values)
    if count == 0:
        return np.zeros(0, np.int64)
    small: type[np.signedinteger] = np.int32 if count < 2**31 else np.int64
    value: np.ndarray
    value, place = values.astype(small), np.arange(count, dtype=small)
    begin, total = np.zeros(count, small), np.zeros(count, np.int64)
    weight = weights
    for bit in reversed(range(int(values.max()).bit_length())):
        one = (value >> bit) & 1 == 1
        zero = ~one
        zeros = np.zeros(count + 1, small)
        np.cumsum(zero, out=zeros[1:])
        passed = zeros
        if weight is not None:
            passed = np.zeros(count + 1, np.int64)
            np.cumsum(np.where(zero, weight, 0), out=passed[1:])
        total[one] += passed[:-1][one] - passed[begin[one]]
        before = zeros[begin]
        begin = np.where(zero, before, zeros[-1] + begin - before)
        value, place, begin, total = (np.concatenate((a[zero], a[one])) for a in (value, place, begin, total))
        if weight is not None:
            weight = np.concatenate((weight[zero], weight[one]))
    out = np.empty(count, np.int64)
    out[place] = total
    return out
