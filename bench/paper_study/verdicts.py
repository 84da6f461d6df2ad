"""What is said of a finding: the figures, and whether it holds."""

from collections.abc import Sequence
from typing import NamedTuple

HOLDS, FAILS, PARTLY, ABSENT = "holds", "does not hold", "holds in part", "not measurable here"
OPEN = "not measured yet"


class Judged(NamedTuple):
    """What was found, and the verdict."""

    ours: str
    verdict: str


def of_parts(parts: Sequence[bool]) -> str:
    """The verdict of a finding of several parts."""
    return HOLDS if all(parts) else PARTLY if any(parts) else FAILS


def of_share(count: int, of: int) -> str:
    """The verdict of a finding about all cases: it holds where more than 80 % of them agree, in part above half."""
    return HOLDS if count > 0.8 * of else PARTLY if count > 0.5 * of else FAILS
