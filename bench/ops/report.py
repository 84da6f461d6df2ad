"""The table and the plot of docs/performance.md, from the JSON of `bench.ops`."""

import json
from pathlib import Path
from typing import Any

from bench.ops.thresholds import thresholds_text
from bench.pages import write_between

BEGIN, END = "<!-- bench.ops: begin -->", "<!-- bench.ops: end -->"
COLUMNS = ("native", "dense", "segment", "dgl", "pyg")


def write_report(result: Path, docs: Path) -> None:
    """Replaces what stands between the marks in `performance.md` and writes `performance_ops.svg`."""
    record = json.loads(result.read_text())
    write_between(docs / "performance.md", BEGIN, END, _tables(record, result.name))
    _plot(record, docs / "performance_ops.svg")


def _tables(record: dict[str, Any], name: str) -> str:
    versions = ", ".join(f"{key} {value}" for key, value in record["versions"].items())
    lines = [
        f"Machine: {record['machine']}; {versions}; commit {record['commit']}; load average"
        f" {record['load_average_at_start']} at the start; {record['gib_per_s']} GiB/s, {record['gflop_per_s']} GFLOP/s"
        f" (`bench/results/{name}`).",
        "",
        "![native against DGL](performance_ops.svg)",
    ]
    for op in dict.fromkeys(row["op"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["op"] == op]
        columns = [column for column in COLUMNS if any(column in row["results"] for row in rows)]
        columns += sorted({key for row in rows for key in row["results"]} - set(columns))
        bounded = any("bound_ms" in row for row in rows)
        peer = any("dgl" in row["results"] for row in rows)
        header = ["case", "pass", "edges", *columns] + ["bound"] * bounded + ["DGL / native"] * peer
        lines += ["", f"### {op} (median ms)", "", "| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        for row in rows:
            results = row["results"]
            cells = [row["case"], row["pass"], f"{row['num_edges']:,}"]
            cells += [f"{results[column]['ms']:.2f}" if column in results else "" for column in columns]
            cells += [f"{row['bound_ms']:.2f}" if "bound_ms" in row else ""] * bounded
            cells += [f"{results['dgl']['over_native']:.1f}" if "over_native" in results.get("dgl", {}) else ""] * peer
            lines.append("| " + " | ".join(cells) + " |")
    memory = [row for row in record["rows"] if row["pass"] != "forward"]
    lines += ["", "### Memory (MiB above the inputs) and compile time (s), forward + backward", ""]
    lines += ["| op | case | " + " | ".join(COLUMNS) + " | native compiles in |", "|---" * (len(COLUMNS) + 3) + "|"]
    for row in memory:
        cells = [row["op"], row["case"]]
        cells += [f"{row['results'].get(column, {}).get('peak_mib', '')}" for column in COLUMNS]
        cells.append(f"{row['results'].get('native', {}).get('compile_s', '')}")
        lines.append("| " + " | ".join(cells) + " |")
    thresholds = thresholds_text(record["rows"])
    if thresholds:
        lines += ["", "### What `auto` is derived from", "", *thresholds]
    return "\n".join(lines)


def _plot(record: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "jhgnn"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for axis, op in zip(axes, ("neighbor_attention", "neighbor_mean"), strict=True):
        rows = [row for row in record["rows"] if row["op"] == op and row["pass"] != "forward"]
        for column in (*COLUMNS, "bound"):
            times = [row["bound_ms"] if column == "bound" else row["results"].get(column, {}).get("ms") for row in rows]
            points = [(index, value) for index, value in enumerate(times) if value]
            if points:
                marker = "_" if column == "bound" else "o"
                axis.plot(*zip(*points, strict=True), marker, markersize=9 if marker == "_" else 5, label=column)
        axis.set_yscale("log")
        axis.set_xticks(range(len(rows)), [row["case"] for row in rows], rotation=60, ha="right")
        axis.set_ylabel("ms, forward + backward")
        axis.set_title(op)
        axis.grid(axis="y", alpha=0.3)
    axes[0].legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
