"""From which density `auto` takes the dense product instead of segment sums, derived from the rows of `bench.ops`."""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from jhgnn.ops.neighbor_attention import DENSE_FROM as ATTENTION_DENSE_FROM
from jhgnn.ops.neighbor_mean import DENSE_FROM as MEAN_DENSE_FROM

SWEEP = "density_"
"""How the cases of one size and growing density begin."""

IN_CODE = {"neighbor_attention": ATTENTION_DENSE_FROM, "neighbor_mean": MEAN_DENSE_FROM}


def dense_from(rows: Iterable[Mapping[str, Any]], op: str, against: str = "segment") -> float | None:
    """The density at which dense and another implementation take the same time, forward + backward, by the sweep.

    Between two densities the logarithms of the times are taken as linear. The lowest or highest density of the sweep
    where one of the two wins throughout; None without a sweep.
    """
    points = sorted(
        (row["density"], math.log(row["results"]["dense"]["ms"] / row["results"][against]["ms"]))
        for row in rows
        if row["op"] == op
        and row["pass"] != "forward"
        and row["case"].startswith(SWEEP)
        and {"dense", against} <= row["results"].keys()
    )
    if not points:
        return None
    for (low, above), (high, below) in itertools.pairwise(points):
        if above > 0 >= below:
            share = above / (above - below)
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return points[0][0] if points[0][1] <= 0 else points[-1][0]


def thresholds_text(rows: list[Mapping[str, Any]]) -> list[str]:
    """Lines for the page: what the sweep gives beside what the code has, and where native is not the fastest."""
    lines = []
    for op, in_code in IN_CODE.items():
        found = dense_from(rows, op)
        if found is not None:
            lines.append(
                f"- {op}: dense and segment take the same time at a density of {found:.1%}; `auto` takes dense from"
                f" {in_code:.1%} where there is no native kernel."
            )
    rivals = ("native", "dense", "segment")
    compared = [row for row in rows if sum(name in row["results"] for name in rivals) > 1]
    slower = [
        f"{row['op']} {row['case']} {row['pass']} ({best})"
        for row in compared
        if "native" in row["results"]
        and (best := min(row["results"].keys() & set(rivals), key=lambda name: row["results"][name]["ms"])) != "native"
    ]
    if compared and lines:
        which = f": all but {', '.join(slower)}" if slower else ""
        lines.append(
            f"- native is the fastest of ours in {len(compared) - len(slower)} of {len(compared)} rows{which}."
        )
    return lines
