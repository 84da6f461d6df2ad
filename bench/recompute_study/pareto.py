"""Memory against time: a PNG, and an `report.html` of one file without network access."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.recompute_study.budgets import frontier, measured, step_s
from jhgnn.profiling import charts
from jhgnn.profiling.report import page, table
from jhgnn.runtime.files import write_text

MARKS = {"segment": "o", "dense": "s", "native": "D", "fanout": "o", "dgl": "*", "pyg": "P"}
COLOURS = {"segment": "tab:blue", "dense": "tab:orange", "native": "tab:green", "fanout": "tab:blue"} | {
    "dgl": "tab:red",
    "pyg": "tab:purple",
}


def peak_bytes(cell: Mapping[str, Any]) -> int:
    """What a process's steps take beyond what it held before training: comparable between frameworks."""
    return int(cell["steps_peak_bytes"] - cell["before_bytes"])


def draw(results: Mapping[str, Any], path: Path) -> None:
    """The plot of one recipe: compiled temporaries and step times, the frontier, and the peers' marks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 5.0), layout="constrained")
    for implementation in dict.fromkeys(cell["implementation"] for cell in measured(results["cells"])):
        own = [cell for cell in measured(results["cells"]) if cell["implementation"] == implementation]
        places: dict[tuple[float, float], list[str]] = {}
        for cell in own:
            places.setdefault((cell["temp_bytes"] / 2**20, step_s(cell) * 1e3), []).append(cell["remat"])
        axes.scatter(
            *zip(*places, strict=True),
            marker=MARKS[implementation],
            color=COLOURS[implementation],
            label=implementation,
            zorder=3,
        )
        for (x, y), names in places.items():
            axes.annotate(", ".join(names), (x, y), textcoords="offset points", xytext=(5, 4), fontsize=8)
    best = frontier(results["cells"])
    line = [(cell["temp_bytes"] / 2**20, step_s(cell) * 1e3) for cell in best]
    if line:
        axes.plot(*zip(*line, strict=True), color="grey", linewidth=0.8, linestyle="--", label="frontier")
    for cell in results.get("peers", []):
        if cell.get("steps_s"):
            axes.scatter(
                peak_bytes(cell) / 2**20,
                step_s(cell) * 1e3,
                marker=MARKS[cell["implementation"]],
                color=COLOURS[cell["implementation"]],
                label=f"{cell['implementation']}, process's growth",
                zorder=3,
            )
    axes.set(xscale="log", yscale="log", xlabel="temporary memory of a step, MiB", ylabel="step, ms")
    axes.set_title(f"{results['name']}: recompute against memory")
    axes.grid(alpha=0.3, which="both", linewidth=0.4)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=130)
    plt.close(figure)
    temporary.replace(path)


def write_html(results: Mapping[str, Any], path: Path) -> None:
    """The study of one recipe in the form of the profiler's report."""
    cells = measured(results["cells"])
    points = [
        (f"{cell['implementation']} {cell['remat']}", cell["temp_bytes"] / 2**20, step_s(cell) * 1e3) for cell in cells
    ]
    points += [
        (cell["implementation"], peak_bytes(cell) / 2**20, step_s(cell) * 1e3)
        for cell in results.get("peers", [])
        if cell.get("steps_s")
    ]
    stages = sorted({stage for cell in cells for stage in cell["kept"]})
    sections = [
        f"<h1>Recompute against memory: {html.escape(results['name'])}</h1>",
        f"<p class=lead>{html.escape(results['machine'])}, JAX {results['jax']}</p>",
        "<h2>Memory against time</h2>",
        charts.scatter(points, "temporary memory of a step, MiB", "ms", "Memory against time"),
        "<h2>Policies</h2>",
        table(("implementation", "policy", *COLUMNS, *(f"{s} kept, MiB" for s in stages)), rows_of(cells, stages)),
        "<h2>Recommended</h2>",
        table(
            ("from a budget of, MiB", "implementation", "policy", "step, ms"),
            [
                [row["budget_bytes"] / 2**20, row["implementation"], row["remat"], row["step_s"] * 1e3]
                for row in results["recommended"]
            ],
        ),
    ]
    refused = [cell for cell in [*results["cells"], *results.get("peers", [])] if "refused" in cell]
    sections += [f"<p>{html.escape(cell['implementation'])}: {html.escape(cell['refused'])}</p>" for cell in refused]
    write_text(path, page(f"jhgnn: recompute against memory, {results['name']}", sections))


COLUMNS = ("needs, MiB", "temporaries, MiB", "measured above idle, MiB", "GFLOP", "step, ms", "predicted, ms")


def rows_of(cells: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> list[list[Any]]:
    """A row a cell."""
    return [
        [
            cell["implementation"],
            cell["remat"],
            cell["needed_bytes"] / 2**20,
            cell["temp_bytes"] / 2**20,
            peak_bytes(cell) / 2**20 if "steps_peak_bytes" in cell else None,
            cell["flops"] / 1e9,
            step_s(dict(cell)) * 1e3,
            cell["predicted_s"] * 1e3,
            *(cell["kept"].get(stage, 0) / 2**20 for stage in stages),
        ]
        for cell in cells
    ]
