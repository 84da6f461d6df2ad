"""The paper's guidelines 7.1.1 to 7.2.2: what this stack does about each, with figures of stored results."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.paper_study.runs import AGGREGATIONS, geometric_mean
from bench.record import RESULTS

Row = Mapping[str, Any]


def guidelines(rows: Sequence[Row]) -> list[str]:
    """Lines of the page: a paragraph each.

    Args:
        rows: of `bench/results/paper.json`.
    """
    lines = ["", "## The paper's guidelines", ""]
    for title, text in (
        ("7.1.1 Overlap of phases", _overlap(rows)),
        ("7.1.2 Recomputing to reduce memory", _recompute()),
        ("7.1.3 Scheduling by semantic graphs", _schedule()),
        ("7.2.1 Independent parallel neighbor traversal", _traversal()),
        ("7.2.2 Unified reconfigurable units", _units()),
    ):
        lines += [f"**{title}.** {text}", ""]
    return lines


def _read(name: str) -> Any:
    path: Path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _overlap(rows: Sequence[Row]) -> str:
    segment, fused = (
        {row["name"]: row for row in rows if row["group"] == "pairs" and row["aggregation"] == aggregation}
        for aggregation in AGGREGATIONS
    )
    fused = {name: row for name, row in fused.items() if name in segment}
    text = (
        "Stages are fused rather than overlapped: softmax, weighting and sums of neighbor aggregation are one kernel,"
        " and logits are columns of the projection's product."
    )
    if fused:
        gain = geometric_mean([segment[name]["step_s"] / row["step_s"] for name, row in fused.items()])
        text += f" A step is {gain:.2f}x as fast as with segment sums (geometric mean of {len(fused)} pairs)."
    sampled = [row for row in rows if row["group"] == "sampled" and row["aggregation"] == "fused"]
    if sampled:
        shares = [sum(row["host"].values()) / row["traced_s"] for row in sampled]
        text += (
            " Across devices, the host samples, gathers and places later batches on threads while a step runs"
            f" (`sampling.prefetch_threads`); that can hide at most {statistics.mean(shares):.1%} of a step, the share"
            " that these take where batches are prepared in turn."
        )
    return text + " `python -m bench.paper --groups pairs sampled`."


def _recompute() -> str:
    found = _read("recompute/han_dblp.json")
    text = (
        "`training.remat` names what the backward pass recomputes, and `training.memory_budget` chooses it"
        " ([recomputation](recompute.md))."
    )
    rows = [] if found is None else found["parts"].get("cpu", {}).get("rows", [])
    cells = {
        (row["implementation"], row["remat"]): row
        for row in rows
        if row.get("steps_s") and row["dtype"] == "float32" and row["micro_batches"] == 1
    }
    for name in ("segment", "native"):
        none, full = cells.get((name, "none")), cells.get((name, "full"))
        if none and full:
            ratio = statistics.median(full["steps_s"]) / statistics.median(none["steps_s"])
            text += (
                f" HAN on DBLP with `{name}`: `full` needs {full['temp_bytes'] / 2**20:,.0f} MiB of temporaries, `none`"
                f" {none['temp_bytes'] / 2**20:,.0f} MiB, at {ratio:.2f}x the time (medians)."
            )
    return text + " `python -m bench.recompute --cases han_dblp --parts cpu`."


def _schedule() -> str:
    text = (
        "Semantic graphs keep the order of the schema. Each metapath of HAN has a projection of its own, and so has"
        " each relation that is projected first: there are no rows to share."
    )
    found = _read("locality-measured.json")
    orders = [] if found is None else [row for row in found["rows"] if row["group"] == "graph orders"]
    told = [
        f"{row['dataset']} ({row['row']}) {row['ratio']['most shared next']:.2f}x, noise {row['noise']:.0%}"
        for row in orders
        if "most shared next" in row["ratio"]
    ]
    if told:
        text += (
            " Where relations do share rows, the order of most shared rows takes, of the time of the listed order: "
            + "; ".join(told)
            + "."
        )
    return text + " Orders of vertices are in [locality](locality.md). `python -m bench.locality measure`."


def _traversal() -> str:
    text = (
        "Sampling is one native call on all threads, which share nothing but the graph: draws are a function of the"
        " vertex, and no thread waits for another's."
    )
    found = _read("sampling.json")
    first = None if found is None else found["rows"][0]
    if first and "best_peer_over_ours_mean_ms" in first:
        text += (
            f" It takes {first['ours']['mean_ms']:.1f} ms a batch of {first['batch_size']:,} with fan-out"
            f" {first['fan_out']}; the fastest peer (`{first['best_peer_by_mean_ms']}`) takes"
            f" {first['best_peer_over_ours_mean_ms']:.2f}x as long."
        )
    return text + " `python -m bench.sampling`, and `python -m bench.contention` for processes that compete."


def _units() -> str:
    text = (
        "This is advice to makers of hardware. A CPU core already runs every stage, so nothing stands idle while"
        " another kind of stage runs; what software can choose is the form of a stage. Each semantic graph has its"
        " implementation by platform, size and density."
    )
    found = _read("ops-cpu.json")
    rows = [] if found is None else [row for row in found["rows"] if {"native", "dense"} <= row["results"].keys()]
    if rows:
        native = sum(row["results"]["native"]["ms"] <= row["results"]["dense"]["ms"] for row in rows)
        text += f" On the CPU the fused kernel beats the dense product in {native} of {len(rows)} rows."
    return text + " `python -m bench.ops`."
