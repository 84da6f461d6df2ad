"""The study's questions, answered from its rows; every figure is of the stored results."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.gpu.devices import GPUS
from bench.recompute_study.budgets import Row, Seconds, frontier, measured, median_s, name_of
from bench.recompute_study.fit import Result, cpu_rows
from bench.recompute_study.gpus import predicted_s
from bench.recompute_study.rounds import noise

FACTORS = (1.1, 1.3, 2.0)
"""Of the time of a step that keeps everything."""

STORING = ("segment", "fanout")
"""Implementations that make arrays of the edges' size, as other frameworks do."""

PAGE_BYTES = 4096

Key = tuple[str, int, str]


def plain(rows: Sequence[Row]) -> dict[Key, Row]:
    """Compiled rows in float32 by implementation, micro-batches and policy."""
    return {
        (row["implementation"], row["micro_batches"], row["remat"]): row
        for row in rows
        if "temp_bytes" in row and row["dtype"] == "float32"
    }


def gpu_rows(result: Result, gpu: str) -> list[Row]:
    """A case's rows compiled for a GPU, with the time predicted there as `predicted_s`."""
    rows = result["parts"].get(gpu, {}).get("rows", ())
    return [row | {"predicted_s": predicted_s(row, gpu)} for row in rows if "work" in row]


def storing(rows: Mapping[Key, Row]) -> str | None:
    """The implementation of a case that makes arrays of the edges' size, if it compiled."""
    return next((name for name in STORING if (name, 1, "none") in rows), None)


def costs(
    results: Sequence[Result], rows_of: Callable[[Result], list[Row]]
) -> Iterator[tuple[str, str, Row, dict[str, Row]]]:
    """Case, implementation, what keeps everything, and the policies that compile to other programs, in float32."""
    for result in results:
        rows = plain(rows_of(result))
        for name in dict.fromkeys(key[0] for key in rows):
            if name == "dense" or (name, 1, "none") not in rows:
                continue
            none = rows[name, 1, "none"]
            others = {key[2]: row for key, row in rows.items() if key[:2] == (name, 1) and key[2] != "none"}
            yield (
                result["case"],
                name,
                none,
                {remat: row for remat, row in others.items() if row["program"] != none["program"]},
            )


def micro_batches(results: Sequence[Result]) -> Iterator[tuple[str, Row, Row]]:
    """Case, the uncut mini-batch, and the one in most parts: fused kernel, nothing recomputed (CPU, float32)."""
    for result in results:
        rows = {key[1]: row for key, row in plain(cpu_rows(result)).items() if key[0] == "native" and key[2] == "none"}
        if len(rows) > 1:
            yield result["case"], rows[1], rows[max(rows)]


def time_ratio(row: Row, base: Row) -> float | None:
    """Of medians; None where one of them was not run."""
    return median_s(row) / median_s(base) if row.get("steps_s") and base.get("steps_s") else None


def ratio_noise(row: Row, base: Row) -> float:
    """Of a ratio of medians."""
    return noise(row["steps_s"]) + noise(base["steps_s"])


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers; not a number of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def mean_ratios(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Geometric means of pairs of ratios."""
    first, second = (geometric_mean(values) for values in zip(*pairs, strict=True))
    return first, second


def fused(results: Sequence[Result]) -> Iterator[tuple[str, Row, Row, Row]]:
    """Case, the fused kernel that recomputes nothing outside, stored messages likewise, and by the leanest policy."""
    for result in results:
        rows = plain(cpu_rows(result))
        name = storing(rows)
        native = rows.get(("native", 1, "none"))
        if native is None or name is None:
            continue
        leanest = min(
            (row for key, row in rows.items() if key[:2] == (name, 1)), key=lambda each: int(each["temp_bytes"])
        )
        yield result["case"], native, rows[name, 1, "none"], leanest


def more_nodes(rows: Sequence[Row], implementation: str, seconds: Seconds) -> dict[float, tuple[float, Row]]:
    """Factor of time -> how many times the nodes fit the same memory, and by which policy.

    What a step needs is taken to grow with the nodes, weights included.
    """
    own = {key[2]: row for key, row in plain(rows).items() if key[:2] == (implementation, 1)}
    none = own["none"]
    found = {}
    for factor in FACTORS:
        within = [row for row in own.values() if seconds(row) <= factor * seconds(none)]
        best = min(within, key=lambda each: int(each["needed_bytes"]))
        found[factor] = none["needed_bytes"] / best["needed_bytes"], best
    return found


def nodes_that_fit(result: Result, row: Row, gpu: str) -> float | None:
    """Nodes of a graph like this one whose step fits a GPU's memory, if memory grows with the nodes."""
    size = result.get("size")
    return size["nodes"] * GPUS[gpu].memory_bytes / row["needed_bytes"] if size else None


def recommended(rows: Sequence[Row], seconds: Seconds) -> list[Row]:
    """From the largest memory down, in float32: what is fastest among all that fit."""
    return frontier([row for row in rows if row["dtype"] == "float32"], seconds)


def on_cpu(result: Result) -> tuple[list[Row], Seconds]:
    """The rows that ran, and their time."""
    return measured(cpu_rows(result)), median_s


def on_gpu(result: Result, gpu: str) -> tuple[list[Row], Seconds]:
    """The rows that were compiled for a GPU, and their predicted time."""
    return gpu_rows(result, gpu), lambda row: float(row["predicted_s"])


def way(row: Row) -> str:
    """Implementation and policy."""
    return f"`{row['implementation']}` with `{name_of(row)}`"


def growth_bytes(row: Mapping[str, Any]) -> int:
    """What a process's steps take beyond what it held before them: comparable between frameworks."""
    return int(row["steps_peak_bytes"] - row["before_bytes"])


def growth_ratio(row: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """One row's growth over another's; what grows by less than a page counts as one."""
    return max(PAGE_BYTES, growth_bytes(row)) / max(PAGE_BYTES, growth_bytes(other))


def peers_of(result: Result) -> list[Row]:
    """Rows of DGL and PyG that ran."""
    return [row for row in result["parts"].get("peers", {}).get("rows", ()) if row.get("steps_s")]


def peer_costs(results: Sequence[Result]) -> Iterator[tuple[str, str, str, Row, dict[str, Row]]]:
    """Case, peer, way of writing the model, the row that keeps everything, and those that recompute by unit."""
    for result in results:
        by: dict[tuple[str, str], dict[str, Row]] = {}
        for row in peers_of(result):
            by.setdefault((row["implementation"], row["variant"]), {})[row["recompute"]] = row
        for (peer, variant), rows in by.items():
            if "none" in rows:
                yield result["case"], peer, variant, rows["none"], {k: r for k, r in rows.items() if k != "none"}
