"""Interleaved rounds, and which of them the machine's neighbours left alone.

On a shared machine the hypervisor takes processors away for milliseconds. That is no property of a framework, and it
strikes short epochs on two threads harder than long ones on one: a step waits for its slower thread at every operation.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

QUIET_SHARE = 0.01
"""Of the processors' time; a round from which more was stolen is repeated while `EXTRA_S` last."""

EXTRA_S = 30.0
"""For repeated rounds, a case; a quick run has no time for them."""

Epochs = list[dict[str, float]]
_STAT = Path("/proc/stat")


@dataclasses.dataclass(frozen=True)
class Round:
    """The epochs of every column, and the share of the processors' time that was stolen meanwhile."""

    epochs: Mapping[str, Epochs]
    stolen_share: float


def stolen_s(file: Path = _STAT) -> float:
    """Processor seconds that a hypervisor gave to others though wanted here; 0 where the system does not tell."""
    try:
        fields = file.read_text(encoding="ascii").splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def time_round(
    epochs: Callable[[], Mapping[str, Epochs]], threads: int, stolen: Callable[[], float] = stolen_s
) -> Round:
    """Runs one round."""
    start_s, stolen_before_s = time.perf_counter(), stolen()
    found = epochs()
    wall_s = time.perf_counter() - start_s
    return Round(found, (stolen() - stolen_before_s) / max(wall_s * threads, 1e-9))


def one_more(done: list[Round], wanted: int, extra_left_s: float) -> bool:
    """Whether another round is worth its time: fewer than `wanted` were quiet, and time is left for more than those."""
    quiet = sum(each.stolen_share <= QUIET_SHARE for each in done)
    return len(done) < wanted or (quiet < wanted and extra_left_s > 0)


def quietest(done: list[Round], wanted: int) -> list[Round]:
    """The `wanted` rounds from which least was stolen: the same for all columns."""
    return sorted(done, key=lambda each: each.stolen_share)[:wanted]
