"""Dealing weighted pieces of work to shards: largest first, and all ways there are, to check it."""

from collections.abc import Sequence

from jhgnn.errors import InputError

MOST_EXHAUSTIVE = 12


def largest_first(weights: Sequence[float], num_shards: int) -> list[int]:
    """The shard of each piece: the heaviest piece goes to the lightest shard, and so on.

    Equal weights go by position, equally light shards by number. The heaviest shard weighs at most 4/3 - 1/(3 shards)
    times what it must.

    Source: Graham, Bounds on Multiprocessing Timing Anomalies, 1969; Heta's Algorithm 2.
    """
    loads = [0.0] * num_shards
    shards = [0] * len(weights)
    for piece in sorted(range(len(weights)), key=lambda number: (-weights[number], number)):
        lightest = min(range(num_shards), key=lambda shard: (loads[shard], shard))
        shards[piece] = lightest
        loads[lightest] += weights[piece]
    return shards


def exhaustive(weights: Sequence[float], num_shards: int) -> list[int]:
    """The shard of each piece where the heaviest shard is as light as can be, by trying all ways.

    Raises:
        InputError: more than `MOST_EXHAUSTIVE` pieces.
    """
    if len(weights) > MOST_EXHAUSTIVE:
        raise InputError(f"an exhaustive search got {len(weights)} pieces; it takes up to {MOST_EXHAUSTIVE}")
    order = sorted(range(len(weights)), key=lambda number: (-weights[number], number))
    best = largest_first(weights, num_shards)
    bound = makespan(weights, best, num_shards)
    loads = [0.0] * num_shards
    shards = [0] * len(weights)

    def place(at: int) -> None:
        nonlocal best, bound
        if at == len(order):
            best, bound = list(shards), max(loads)
            return
        piece, tried = order[at], set()
        for shard in range(num_shards):
            # Shards of one load are alike: trying one of them is enough.
            if loads[shard] in tried or loads[shard] + weights[piece] >= bound:
                continue
            tried.add(loads[shard])
            shards[piece] = shard
            before = loads[shard]
            loads[shard] = before + weights[piece]
            place(at + 1)
            loads[shard] = before

    place(0)
    return best


def makespan(weights: Sequence[float], shards: Sequence[int], num_shards: int) -> float:
    """The weight of the heaviest shard; 0 without pieces."""
    loads = [0.0] * num_shards
    for weight, shard in zip(weights, shards, strict=True):
        loads[shard] += weight
    return max(loads)
