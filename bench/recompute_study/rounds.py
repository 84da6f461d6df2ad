"""Steps of several programs in turns, until the medians are known well enough or the time is up."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

NOISE = 0.05
"""Of a median, below which it is known well enough."""

FEWEST = 6
"""Steps of a program, where they are short."""

LONG_S = 5.0
"""Of a step: from here on its first one counts, and three are enough."""


def noise(steps_s: Sequence[float]) -> float:
    """How well the median of steps is known: half of its 95 % interval, as a share of it.

    The interval is that of order statistics, which assumes nothing of how times are distributed. Fewer than six steps
    have none, so it is their whole range. Infinite for a single step.
    """
    count, ordered = len(steps_s), sorted(steps_s)
    if count < 2:
        return math.inf
    outside = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2)) if count >= FEWEST else 0
    return (ordered[count - 1 - outside] - ordered[outside]) / 2 / statistics.median(ordered)


def take_rounds(
    steps: Mapping[str, Callable[[], float]],
    least_s: float,
    told: Callable[[Mapping[str, list[float]]], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """Seconds of the steps of every program.

    Args:
        steps: name -> takes a step and says its seconds.
        least_s: rounds go on while some noise is at or over `NOISE`, until so much time has passed; the fewest rounds
            are taken in any case.
        told: is called after each round.
        clock: seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for name, step in steps.items():
        first_s = step()
        if first_s >= LONG_S:
            times[name].append(first_s)
    told(times)
    began = clock()
    while any(_unknown(taken) for taken in times.values()):
        if clock() - began > least_s and not any(_too_few(taken) for taken in times.values()):
            break
        for name, step in steps.items():
            times[name].append(step())
        told(times)
    return times


def _unknown(taken: Sequence[float]) -> bool:
    return _too_few(taken) or noise(taken) >= NOISE


def _too_few(taken: Sequence[float]) -> bool:
    return len(taken) < (3 if taken and taken[0] >= LONG_S else FEWEST)
