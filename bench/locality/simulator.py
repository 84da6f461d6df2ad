"""A cache that is played through access by access: the slow truth that hit rates from distances are held to."""

from collections import OrderedDict
from collections.abc import Iterable


def hits(lines: Iterable[int], num_lines: int, *, ways: int | None = None, rounds: int = 1) -> list[bool]:
    """Whether each access of the last round finds its line; the line read longest ago makes room.

    Args:
        lines: whole numbers from 0 on.
        num_lines: that the cache holds.
        ways: lines of a set; line `i` belongs to set `i % (num_lines // ways)`. None: one set, fully associative.
        rounds: how often the trace is read, one after the other, with the cache left as it is.

    Raises:
        ValueError: the lines of the cache are no multiple of its ways.
    """
    ways = num_lines if ways is None else ways
    if ways and num_lines % ways:
        raise ValueError(f"{num_lines} lines are no multiple of {ways} ways")
    count = num_lines // ways if ways else 1
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(count)]
    trace = list(lines)
    found: list[bool] = []
    for _ in range(rounds):
        found = []
        for line in trace:
            own = sets[line % count]
            found.append(line in own)
            own[line] = None
            own.move_to_end(line)
            if len(own) > ways:
                own.popitem(last=False)
    return found
