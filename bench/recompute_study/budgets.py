"""What each budget would get: the measured fastest that fits, and what the search chooses from its prediction."""

import statistics
from collections.abc import Sequence
from typing import Any

Cell = dict[str, Any]


def step_s(cell: Cell) -> float:
    """The fastest step: the machine may run other things as well."""
    return min(cell["steps_s"])


def measured(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of jhgnn that ran."""
    return [cell for cell in cells if cell.get("steps_s") and "needed_bytes" in cell]


def frontier(cells: Sequence[Cell]) -> list[Cell]:
    """From the largest budget down: the cells that no other beats in both memory and time."""
    best: list[Cell] = []
    for cell in sorted(measured(cells), key=lambda each: (each["needed_bytes"], step_s(each))):
        if not best or step_s(cell) < step_s(best[-1]):
            best.append(cell)
    return best[::-1]


def recommended(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Budget -> what to use, over all implementations: each line holds from its budget up to the line above."""
    return [
        {
            "budget_bytes": cell["needed_bytes"],
            "implementation": cell["implementation"],
            "remat": cell["remat"],
            "step_s": step_s(cell),
        }
        for cell in frontier(cells)
    ]


def search_check(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For every implementation and budget at which the choice may change: predicted against measured fastest.

    `regret` is the chosen one's measured time over that of the fastest that fits, less 1; the noise of times is in it.
    """
    rows = []
    for implementation in dict.fromkeys(cell["implementation"] for cell in measured(cells)):
        own = [cell for cell in measured(cells) if cell["implementation"] == implementation]
        for budget in sorted({cell["needed_bytes"] for cell in own}):
            fitting = [cell for cell in own if cell["needed_bytes"] <= budget]
            chosen = min(fitting, key=lambda each: each["predicted_s"])
            fastest = min(fitting, key=step_s)
            rows.append(
                {
                    "implementation": implementation,
                    "budget_bytes": budget,
                    "chosen": chosen["remat"],
                    "fastest": fastest["remat"],
                    "regret": step_s(chosen) / step_s(fastest) - 1.0,
                    "noise": noise(fastest),
                }
            )
    return rows


def noise(cell: Cell) -> float:
    """How far a cell's steps lie apart: their median over the fastest, less 1."""
    return statistics.median(cell["steps_s"]) / step_s(cell) - 1.0


def ordered(cells: Sequence[Cell], slack: float = 0.02) -> list[str]:
    """Pairs of policies in the wrong order of temporary memory, which should fall from `none` to `full`; in words.

    `slack` allows for what buffers of equal programs lose to alignment and fragmentation.
    """
    wrong = []
    for implementation in dict.fromkeys(cell["implementation"] for cell in measured(cells)):
        by = {cell["remat"]: cell["temp_bytes"] for cell in measured(cells) if cell["implementation"] == implementation}
        for more, less in (("none", "na"), ("na", "stage"), ("stage", "full"), ("none", "dots"), ("dots", "full")):
            if more in by and less in by and by[less] > by[more] * (1.0 + slack):
                wrong.append(f"{implementation}: {less} {by[less]:,} B over {more} {by[more]:,} B")
    return wrong
