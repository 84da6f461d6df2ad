"""The parity table of docs/comparison.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.pages import write_between

BEGIN, END = "<!-- parity: begin -->", "<!-- parity: end -->"
COLUMNS = {
    "output": "output",
    "gradients": "gradients",
    "losses, SGD": "losses, 20 SGD",
    "parameters after SGD": "parameters, 20 SGD",
    "losses, Adam": "losses, 20 Adam",
    "output after Adam": "output, 20 Adam",
    "parameters after Adam, norm": "parameters, 20 Adam",
}
TO_FLOAT64 = {
    "gradients": "gradients to float64: ours, peer",
    "output after Adam": "output, 20 Adam, to float64: ours, peer",
}


def write_table(rows: Sequence[Mapping[str, Any]], page: Path) -> None:
    """Replaces what stands between the page's markers."""
    lines = [
        "| model, data | peer | " + " | ".join(COLUMNS.values()) + " | " + " | ".join(TO_FLOAT64.values()) + " |",
        "|" + " --- |" * (len(COLUMNS) + len(TO_FLOAT64) + 2),
    ]
    for row in rows:
        cells = [f"{row['model']} {row['dataset']}", f"{row['framework']}: {row['variant']}"]
        cells += [f"{row['errors'][kind][0]:.1e}" for kind in COLUMNS]
        sides = [row[side] for side in ("ours_float64", "peer_float64") if side in row]
        for kind in TO_FLOAT64:
            cells.append(", ".join(f"{side[kind][0]:.1e}" for side in sides if kind in side) or "-")
        lines.append("| " + " | ".join(cells) + " |")
    write_between(page, BEGIN, END, "\n" + "\n".join(lines) + "\n")
