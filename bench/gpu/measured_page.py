"""`python -m bench.gpu page`: the tables of docs/gpu.md of what was measured on a device, from the stored runs."""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bench.gpu.page import PAGE
from bench.record import RESULTS

RUNS = RESULTS / "gpu-h200"
MARKS = "<!-- measured -->", "<!-- /measured -->"
Row = Mapping[str, Any]
_PYG = ("PyG: in a row", "waiting", "PyG / ours")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def with_tables(text: str) -> str:
    """The page with what stands between its marks made anew."""
    made = "\n".join([MARKS[0], *_lines(), MARKS[1]])
    return re.sub(f"{MARKS[0]}.*?{MARKS[1]}", lambda _: made, text, flags=re.S)


def _lines() -> list[str]:
    first, second, last = (json.loads((RUNS / f"run-{n}.json").read_text(encoding="utf-8")) for n in (1, 2, 3))
    device, predicted = last["device"], json.loads((RUNS / "predicted.json").read_text(encoding="utf-8"))
    return [
        f"On one {device['device']} with 16 cores, JAX {device['versions']['jax']}, PyTorch 2.11 and PyG 2.8, in three"
        f" runs: at {first['commit']}, {second['commit']} and {last['commit']}.",
        "",
        "### Epochs beside PyG's",
        "",
        "An update of the whole graph, ms: several started in a row, and one with a wait after it. PyG's is the"
        " quickest of the ways to write the model that `bench/gpu/measure/epochs.py` tries; the ratio is the lesser of"
        " the two. In run 3 `auto` was native attention with loops over buckets for means and projections; `native` has"
        " native means too, and `all native` projections as well.",
        "",
        *_table(
            (*("case", "run 1: in a row", "waiting", "run 3: in a row", "waiting"), *_PYG),
            _epochs(first["summary"]["epochs"], last["summary"]["epochs"]),
        ),
        "",
        "### Ops beyond the cache",
        "",
        "On `ogbn-mag`'s 7.1 million authors' edges, 8 heads of 8 columns: ms, and the share of the rate of a copy.",
        "",
        *_table(
            ("op", "ours: run 1", "run 2", "run 3", "bucketed", "cuSPARSE", "PyG"),
            _ops(*(run["items"]["ops beyond the cache"]["rows"] for run in (first, second, last))),
        ),
        "",
        "### What Nsight Compute counts of our kernels",
        "",
        "Each once, after the caches were emptied, which is slower than in training. Run 1 has the kernels as they"
        " were, run 2 the first that walk by groups of lanes.",
        "",
        *_table(
            ("kernel", "run", "ms", "DRAM, GB", "of its rate", "L2 hits", "warps", "waits for memory"),
            [
                *_counters(first["items"]["counters of kernels"]["rows"], 1),
                *_counters(second["items"]["counters of kernels"]["rows"], 2),
            ],
        ),
        "",
        "### A step by stage",
        "",
        "Of XLA's traces (`bench/results/gpu-h200/traces`), with loops over degree buckets: kernels of a step, the"
        " share of the traced step in which none ran, which tracing makes larger, and how the time of kernels divides.",
        "",
        *_table(
            ("case", "kernels", "idle", "FP", "NA", "SF", "LC", "PU", "forward / backward"),
            _stages(row for name, item in first["items"].items() if name.startswith("stages") for row in item["rows"]),
        ),
        "",
        "### What a call costs the host",
        "",
        "Microseconds, the second of two rounds: of the call itself, then until the loss is there, and then until all"
        " is. Arrays are those of the state and those that a step reads.",
        "",
        *_table(
            ("case", "kernels", "arrays", "started as a graph", "in a row", "call", "until the loss", "until all"),
            _calls(second["items"]["calls"]["rows"]),
        ),
        "",
        "### What is predicted of it",
        "",
        "Updates in a row, ms, in run 3, and as [the study of recomputation](recompute.md) predicts times of GPUs, from"
        " the compiled programs' launches, operations and bytes. In the geometric mean"
        f" {predicted['geometric_mean']:.2f} of the measured time is predicted."
        " `python -m bench.gpu predicted` does it anew.",
        "",
        *_table(
            ("case", "kernels", "launches", "predicted", "measured", "ratio"),
            _predictions(predicted["rows"]),
        ),
        "",
        "### How far ahead a kernel reads",
        "",
        "Attention and mean with their gradients on the same 7.1 million edges, ms, in run 3.",
        "",
        *_table(
            ("kernels", "tiles, at most", "attention", "mean"),
            (
                [row["name"], f"{row['most_tiles']:,}", f"{row['attention_ms']:.2f}", f"{row['mean_ms']:.2f}"]
                for row in last["items"]["variants"]["rows"]
            ),
        ),
    ]


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    names = list(columns)
    lines = [names, ["---"] * len(names), *(list(map(str, row)) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _epochs(first: Mapping[str, Row], last: Mapping[str, Row]) -> Iterable[list[str]]:
    for case, row in last.items():
        before = first[case]
        yield [
            case.replace("-", " "),
            *(f"{before[f'ours_{way}']['ms']:.2f}" for way in ("in_a_row", "waiting")),
            *(f"{row[f'ours_{way}']['ms']:.2f} ({row[f'ours_{way}']['by']})" for way in ("in_a_row", "waiting")),
            *(f"{row[f'pyg_{way}']['ms']:.2f}" for way in ("in_a_row", "waiting")),
            f"{row['pyg_over_ours']:.1f}",
        ]


def _ops(*runs: list[Row]) -> Iterable[list[str]]:
    def cell(rows: list[Row], op: str, way: str, implementation: str) -> str:
        for row in rows:
            if (row["op"], row["pass"], row["implementation"]) == (op, way, implementation):
                return f"{row['ms']:.2f} ({row['share_of_copy']:.0%})"
        return ""

    for op, way in dict.fromkeys((row["op"], row["pass"]) for row in runs[-1]):
        yield [
            f"{op.removeprefix('neighbor_')}, {way}",
            *(cell(rows, op, way, "native") for rows in runs),
            *(cell(runs[-1], op, way, name) for name in ("bucketed", "cusparse", "pyg")),
        ]


def _counters(rows: Iterable[Row], run: int) -> Iterable[list[str]]:
    for row in rows:
        yield [
            *(row["kernel"].removeprefix("jhgnn_").replace("_", " "), str(run), f"{1e3 * row['seconds']:.2f}"),
            *(f"{row['dram_bytes'] / 1e9:.2f}", f"{row['dram_share']:.0%}", f"{row['l2_hit_share']:.0%}"),
            *(f"{row['occupancy']:.0%}", f"{row['memory_stall_share']:.0%}"),
        ]


def _stages(rows: Iterable[Row]) -> Iterable[list[str]]:
    for row in rows:
        busy = sum(each["share"] for each in row["stages"])

        def share(*, busy: float = busy, row: Row = row, **of: str) -> float:
            found = (each for each in row["stages"] if all(each[key] == value for key, value in of.items()))
            return sum(each["share"] for each in found) / busy

        ways = share(direction="forward") / share(direction="backward")
        yield [
            *(row["case"].replace("-", " "), f"{row['launches']:.0f}", f"{1 - busy:.0%}"),
            *(f"{share(stage=stage):.1%}" for stage in ("FP", "NA", "SF", "LC", "PU")),
            f"{ways:.2f}",
        ]


def _calls(rows: list[Row]) -> Iterable[list[str]]:
    last: dict[tuple[object, ...], Row] = {}
    for row in rows:  # the second round replaces the first
        last[row["case"], row["implementation"], row["command_buffers"], row["variant"]] = row
    for row in last.values():
        yield [
            row["case"].replace("-", " "),
            row["implementation"],
            f"{row['state_arrays']} + {row['read_arrays']}",
            "yes" if row["command_buffers"] else "no",
            *(str(row[key]) for key in ("in_a_row_us", "call_us", "until_loss_us", "until_all_us")),
        ]


def _predictions(rows: Iterable[Row]) -> Iterable[list[str]]:
    for row in rows:
        times = row["predicted_ms"], row["measured_ms"]
        names = row["case"].replace("-", " "), row["implementation"], str(row["launches"])
        yield [*names, *(f"{ms:.2f}" for ms in times), f"{times[0] / times[1]:.2f}"]
