"""How long a run's steps took, in memory that does not grow with their number."""

import math
import statistics
from collections import deque

WARM_UP_STEPS = 3
"""Steps not counted in `epoch_ms`, as in "Characterizing and Understanding HGNN Training on GPUs", section 3.2."""
LATEST = 65_536
"""Steps that the median is taken of: all of most runs, the latest ones of a longer one."""


class StepTimes:
    """Wall-clock seconds of steps.

    Attributes:
        count: steps so far.
        total_s: of all of them.
    """

    def __init__(self) -> None:
        self.count, self.total_s = 0, 0.0
        self._epoch_steps, self._epoch_s = 0, 0.0
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=LATEST)

    def add(self, seconds: float) -> None:
        """One more step."""
        self.count += 1
        self.total_s += seconds
        self._epoch_steps += 1
        self._epoch_s += seconds
        (self._first if self.count <= WARM_UP_STEPS else self._latest).append(seconds)

    def end_epoch_ms(self) -> float:
        """Mean milliseconds of the steps since the last epoch's end; those to come are of the next epoch."""
        mean = self._epoch_s / max(1, self._epoch_steps) * 1e3
        self._epoch_steps, self._epoch_s = 0, 0.0
        return mean

    def median_ms(self) -> float:
        """Median milliseconds of the steps after the warm-up, or of the warm-up where no others are; NaN without."""
        timed = self._latest or self._first
        return statistics.median(timed) * 1e3 if timed else math.nan
