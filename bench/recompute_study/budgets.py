"""What each budget would get: the measured fastest that fits, and what the search chooses from a predicted time."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.recompute_study.rounds import noise

Row = dict[str, Any]
Seconds = Callable[[Row], float]
SLACK = 0.05
"""By which the chosen may be slower than the fastest."""


def median_s(row: Row) -> float:
    """Of a row's measured steps."""
    return statistics.median(row["steps_s"])


def measured(rows: Iterable[Row]) -> list[Row]:
    """Those that ran."""
    return [row for row in rows if row.get("steps_s") and "needed_bytes" in row]


def alike(rows: Iterable[Row], *fields: str) -> list[list[Row]]:
    """Rows grouped by fields, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[field] for field in fields), []).append(row)
    return list(groups.values())


def frontier(rows: Sequence[Row], seconds: Seconds = median_s) -> list[Row]:
    """From the largest need down: the rows that no other beats in both memory and time."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda each: (each["needed_bytes"], seconds(each))):
        if not best or seconds(row) < seconds(best[-1]):
            best.append(row)
    return best[::-1]


def choices(rows: Sequence[Row], predicted: Seconds) -> list[Row]:
    """What a search would choose at every budget at which its choice may change, against the measured fastest.

    A search compares the policies of one implementation and number type, and tries more micro-batches only where
    nothing fits with fewer, as `jhgnn.planning.budget` does. `regret` is the chosen one's time over that of the fastest
    of all that fit, less 1; where both are one program it is 0. `noise` is the larger of the two medians' noises.
    """
    found = []
    for group in alike(measured(rows), "implementation", "dtype"):
        for budget in sorted({row["needed_bytes"] for row in group}):
            fitting = [row for row in group if row["needed_bytes"] <= budget]
            fewest = min(row["micro_batches"] for row in fitting)
            chosen = min((row for row in fitting if row["micro_batches"] == fewest), key=predicted)
            fastest = min(fitting, key=median_s)
            found.append(
                {
                    "implementation": chosen["implementation"],
                    "dtype": chosen["dtype"],
                    "budget_bytes": budget,
                    "chosen": name_of(chosen),
                    "fastest": name_of(fastest),
                    "regret": median_s(chosen) / median_s(fastest) - 1.0,
                    "noise": max(noise(chosen["steps_s"]), noise(fastest["steps_s"])),
                }
            )
    return found


def name_of(row: Row) -> str:
    """A policy, and micro-batches if there are several."""
    return row["remat"] + (f", {row['micro_batches']} micro-batches" if row["micro_batches"] > 1 else "")


def out_of_order(rows: Iterable[Row], slack: float = 0.02) -> list[tuple[Row, Row]]:
    """Pairs of programs in the wrong order of temporary memory, which should fall from `none` to `full`.

    Of a pair the first is of the policy that keeps more, the second of one that keeps less and needs more. A pair of
    programs stands once, under the first policies that compile to them. `slack` allows for what buffers of equal
    programs lose to alignment and fragmentation.
    """
    wrong: dict[tuple[str, str], tuple[Row, Row]] = {}
    pairs = (("none", "na"), ("na", "stage"), ("stage", "full"), ("none", "dots"), ("dots", "full"))
    for group in alike([row for row in rows if "temp_bytes" in row], "implementation", "dtype", "micro_batches"):
        by_policy = {row["remat"]: row for row in group}
        for one, other in pairs:
            keeps_more, keeps_less = by_policy.get(one), by_policy.get(other)
            if keeps_more and keeps_less and keeps_less["temp_bytes"] > keeps_more["temp_bytes"] * (1.0 + slack):
                wrong.setdefault((keeps_more["program"], keeps_less["program"]), (keeps_more, keeps_less))
    return list(wrong.values())
