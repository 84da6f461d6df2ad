"""The points at which a command can fail: its calls on files, each with the ways in which such a call fails."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

WAYS = {
    "open": ("EIO", "EACCES"),
    "read": ("EIO",),
    "create": ("ENOSPC", "EROFS", "EIO"),
    "write": ("ENOSPC", "short", "EIO"),
    "mkdir": ("ENOSPC", "EROFS"),
    "rename": ("EIO", "EROFS"),
    "sync": ("EIO", "ENOSPC"),
    "unlink": ("EIO", "EROFS"),
}
"""By operation. A disk that is full or read-only stays so for the rest of the command."""

_STAY = ("ENOSPC", "EROFS")


@dataclasses.dataclass(frozen=True)
class Point:
    """One call and the way in which it fails.

    Attributes:
        operation, path: as the library logs them.
        nth: which call of this operation on this path, from 1.
        way: an errno's name, or `short`.
    """

    operation: str
    path: str
    nth: int
    way: str

    def faults(self) -> dict[str, str]:
        """What tells the library."""
        return {
            "FAULT_OPERATION": self.operation,
            "FAULT_PATH": self.path,
            "FAULT_NTH": str(self.nth),
            "FAULT_KIND": self.way,
            "FAULT_STAYS": "1" if self.way in _STAY else "",
        }

    def __str__(self) -> str:
        return f"{self.way} at {self.operation} {self.nth} of {self.path}"


def points(calls: Iterable[tuple[int, str, str]]) -> list[Point]:
    """Of a command's calls: every operation on every path, its first call, one in the middle and its last, each way."""
    counts = Counter((operation, path) for _, operation, path in calls)
    found = []
    for (operation, path), count in counts.items():
        for nth in sorted({1, (count + 1) // 2, count}):
            found += [Point(operation, path, nth, way) for way in WAYS[operation]]
    return found


def spread(choices: Sequence, most: int) -> list:
    """At most so many of a sequence, evenly."""
    if len(choices) <= most:
        return list(choices)
    return [choices[number * len(choices) // most] for number in range(most)]


def fired(log: Path) -> bool:
    """Whether the call came, and failed."""
    return any(line.endswith("\t!") for line in log.read_text().splitlines()) if log.exists() else False
