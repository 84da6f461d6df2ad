"""What no program of a recipe may have when it is compiled for a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FREE = ("segment", "dense")
"""Variants that are compiled to be compared with, and keep no limit."""

TEMP_BYTES = {"native": 40 * 2**20, "bucketed": 90 * 2**20}
"""Temporaries of HAN's update on DBLP, at most, by the implementation of attention."""


def broken(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """In words, the limits that a row breaks among all rows of a run."""
    if "skipped" in row or row["gpu"] == "cpu" or row["variant"] in FREE:
        return
    name = f"{row['case']} {row['program']} for {row['devices']} x {row['gpu']}"
    for scatter in row["float_scatters"]:
        yield f"{name}: a scatter of floats: {scatter}"
    for array in row["edge_wide_arrays"]:
        yield f"{name}: an array of a message for each edge: {array}"
    most = TEMP_BYTES["native" if "native" in row["implementations"] else "bucketed"]
    if row["recipe"] == "han_dblp" and row["program"] == "update" and row["temp_bytes"] > most:
        yield f"{name}: {row['temp_bytes'] / 2**20:.1f} MiB of temporaries, over {most / 2**20:.0f}"
    for other in rows:
        same = all(other.get(key) == row[key] for key in ("case", "program", "devices"))
        if same and other.get("gpu") == "cpu" and len(other["collectives"]) != len(row["collectives"]):
            yield f"{name}: {len(row['collectives'])} collectives, on CPUs {len(other['collectives'])}"
