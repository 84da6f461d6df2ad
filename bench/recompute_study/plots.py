"""The page's three plots: memory against time, fused kernels beside stored messages, nodes that fit a GPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.recompute_study import answers
from bench.recompute_study.budgets import Row, measured, median_s
from bench.recompute_study.fit import Result, cpu_rows

COLOURS = {"native": "tab:green", "segment": "tab:blue", "fanout": "tab:blue", "dense": "tab:orange"}
PEERS = {"dgl": ("*", "tab:red"), "pyg": ("P", "tab:purple")}
MARKS = {"none": "o", "na": "v", "dots": "s", "stage": "D", "full": "^"}
MIB = 2**20
PARETO, FUSED, NODES = "recompute_pareto.png", "recompute_fused.png", "recompute_nodes.png"


def draw_all(results: Sequence[Result], folder: Path) -> list[str]:
    """Draws what there is results for; names of the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    drawn = [draw for draw in (_pareto(results), _fused(results), _nodes(results)) if draw is not None]
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn:
        temporary = folder / f".{name}"
        figure.savefig(temporary, dpi=100, format="png")
        temporary.replace(folder / name)
    return [name for name, _ in drawn]


def _pareto(results: Sequence[Result]) -> tuple[str, Any] | None:
    """A panel a case: temporaries and time of each policy, beside the growth and time of the peers."""
    from matplotlib.figure import Figure

    shown = [result for result in results if measured(cpu_rows(result))]
    if not shown:
        return None
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.3 * lines + 0.5), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, result in zip(grid, shown, strict=False):
        own = [row for row in measured(cpu_rows(result)) if row["dtype"] == "float32" and row["micro_batches"] == 1]
        for row in own:
            place = row["temp_bytes"] / MIB, median_s(row) * 1e3
            axes.scatter(*place, marker=MARKS[row["remat"]], color=COLOURS[row["implementation"]], s=28, zorder=3)
        for row in answers.peers_of(result):
            mark, colour = PEERS[row["implementation"]]
            place = answers.growth_bytes(row) / MIB, median_s(row) * 1e3
            faded = 1.0 if row["recompute"] == "none" else 0.4
            axes.scatter(*place, marker=mark, color=colour, alpha=faded, s=40, zorder=3)
        axes.set(xscale="log", yscale="log", title=result["case"])
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis)
        axes.grid(alpha=0.3, which="both", linewidth=0.4)
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("temporary memory of a step, MiB (DGL and PyG: growth of the process)")
    figure.supylabel("step, ms")
    figure.legend(handles=_legend(), loc="outside upper center", ncols=5, fontsize=8)
    return PARETO, figure


def _plain_ticks(axis: Any) -> None:
    """Few ticks of a logarithmic axis, as plain numbers, also where it has less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D

    def mark(marker: str, colour: str, label: str) -> Any:
        return Line2D([], [], linestyle="", marker=marker, color=colour, label=label)

    names = {"native": "native", "segment": "segment, fanout", "dense": "dense"}
    return [
        *(mark("o", COLOURS[name], label) for name, label in names.items()),
        *(mark(shape, colour, {"dgl": "DGL", "pyg": "PyG"}[peer]) for peer, (shape, colour) in PEERS.items()),
        *(mark(shape, "grey", remat) for remat, shape in MARKS.items()),
    ]


def _fused(results: Sequence[Result]) -> tuple[str, Any] | None:
    """Temporaries of the fused kernel that keeps everything, and of stored messages with and without recomputation."""
    from matplotlib.figure import Figure

    found = list(answers.fused(results))
    if not found:
        return None
    figure = Figure(figsize=(max(6.0, 0.8 * len(found) + 2), 4.0), layout="constrained")
    axes = figure.subplots()
    bars = {
        "messages stored, nothing recomputed": ([stored for _, _, stored, _ in found], "tab:blue"),
        "messages stored, leanest policy": ([leanest for *_, leanest in found], "lightskyblue"),
        "fused kernel, nothing recomputed": ([native for _, native, _, _ in found], "tab:green"),
    }
    for number, (label, (rows, colour)) in enumerate(bars.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(found))]
        axes.bar(places, [row["temp_bytes"] / MIB for row in rows], 0.25, label=label, color=colour)
    axes.set(yscale="log", ylabel="temporaries of a step, MiB")
    axes.set_xticks(range(len(found)), [case for case, *_ in found], rotation=35, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3, linewidth=0.4)
    axes.legend(fontsize=8)
    return FUSED, figure


def _nodes(results: Sequence[Result]) -> tuple[str, Any] | None:
    """How many times the nodes fit at each factor of time: of stored messages and of the fused kernel."""
    from matplotlib.figure import Figure

    points: dict[str, list[tuple[str, list[float]]]] = {}
    for result in results:
        rows, seconds = answers.on_cpu(result)
        compiled: dict[Any, Row] = answers.plain(rows)
        for name in (*answers.STORING, "native"):
            if (name, 1, "none") in compiled:
                more = answers.more_nodes(rows, name, seconds)
                points.setdefault("native" if name == "native" else "messages stored", []).append(
                    (result["case"], [more[factor][0] for factor in answers.FACTORS])
                )
    if not points:
        return None
    figure = Figure(figsize=(4.8 * len(points), 4.2), layout="constrained")
    grid = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(grid, points.items(), strict=True):
        for case, values in lines:
            axes.plot([1.0, *answers.FACTORS], [1.0, *values], marker="o", linewidth=1, label=case)
        axes.set(title=title, xlabel="time of a step over that of `none`", yscale="log")
        _plain_ticks(axes.yaxis)
        axes.grid(alpha=0.3, which="both", linewidth=0.4)
        axes.legend(fontsize=7)
    figure.supylabel("times the nodes that fit")
    return NODES, figure
