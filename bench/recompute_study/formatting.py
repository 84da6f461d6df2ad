"""How the study's pages write numbers and tables."""

import math
from collections.abc import Sequence

from bench.recompute_study.budgets import Row, median_s
from bench.recompute_study.rounds import NOISE, noise

MIB, GIB = 2**20, 2**30
NAMES = {"dgl": "DGL", "pyg": "PyG", "h100": "H100", "h200": "H200", "a100": "A100"}


def mib(num_bytes: float) -> str:
    return f"{num_bytes / MIB:,.1f}"


def ms(row: Row) -> str:
    """The median of a row's steps."""
    return f"{median_s(row) * 1e3:,.1f}" if row.get("steps_s") else "not run"


def noise_of(row: Row) -> str:
    """In bold where it is too large."""
    found = noise(row["steps_s"])
    shown = "one step" if math.isinf(found) else f"{found:.1%}"
    return f"**{shown}**" if found >= NOISE else shown


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
