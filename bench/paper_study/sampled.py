"""Findings 15, 17, 18 and 21: mini-batches and the time of their sampling."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.paper_study.verdicts import Judged, of_parts

Row = Mapping[str, Any]


def step_shares(row: Row) -> dict[str, float]:
    """Shares of a mini-batch step's wall time: host parts, stages, idle; they sum to 1."""
    seconds = dict(row["host"]) | {"idle": row["idle_s"]}
    for each in row["stages"]:
        seconds[each["stage"]] = seconds.get(each["stage"], 0.0) + each["seconds"]
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def sampling_share(rows: Sequence[Row]) -> Judged:
    """Finding 15."""
    sample = {row["name"]: step_shares(row).get("SAMPLE", 0.0) for row in rows}
    highest = max(sample, key=lambda name: sample[name])
    ours = (
        f"{statistics.mean(sample.values()):.1%} on average of {len(rows)} pairs, up to {sample[highest]:.1%}"
        f" ({highest}); the batch is prepared before the step, on {rows[0]['sampling']['threads']} threads"
    )
    return Judged(ours, of_parts([statistics.mean(sample.values()) > 0.5, max(sample.values()) > 0.5]))


def sampling_ms(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Data set -> number or length of metapaths -> ms of sampling a batch, of runs that are so named."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        dataset, key = row["name"].split()
        found.setdefault(dataset, {})[int(key)] = 1e3 * row["host"].get("SAMPLE", 0.0)
    return found


def _grown(series: Mapping[int, float]) -> float:
    return series[max(series)] / series[min(series)]


def sample_length(rows: Sequence[Row]) -> Judged:
    """Finding 17."""
    series = sampling_ms(rows)
    ours = "; ".join(
        f"{name} length {min(each)} to {max(each)}: {_grown(each):.2f}x ({each[min(each)]:.2f} to"
        f" {each[max(each)]:.2f} ms a batch)"
        for name, each in series.items()
    )
    return Judged(ours, of_parts([_grown(series["imdb"]) < 1.5, _grown(series["mag"]) > 1.1]))


def sample_number(rows: Sequence[Row]) -> Judged:
    """Finding 18."""
    series = sampling_ms(rows)
    ours = "; ".join(
        f"{name} {min(each)} to {max(each)} metapaths: {_grown(each):.2f}x" for name, each in series.items()
    )
    return Judged(ours, of_parts([_grown(each) > 1.5 for each in series.values()]))


def contention(rows: Sequence[Row]) -> Judged:
    """Finding 21."""
    first, *others = rows
    times = ", ".join(f"{row['sample_s'] / first['sample_s']:.2f}x on {row['name']}" for row in others)
    switches = ", ".join(f"{row['switches']:.1f} on {row['name']}" for row in rows)
    ours = (
        f"time of a process's share of a batch, though the share shrinks: {times}; context switches a batch {switches};"
        " processes on this CPU for as many devices (`python -m bench.contention`); cache hit rates need counters"
    )
    slower = [row["sample_s"] * int(row["name"]) / first["sample_s"] > 1.1 for row in others]
    return Judged(ours, of_parts([all(slower), others[-1]["sample_s"] > first["sample_s"]]))
