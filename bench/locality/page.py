"""docs/locality.md's tables and plot, from the stored results."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.locality.model import CURVE_ROWS
from bench.pages import write_between
from bench.record import ROOT

PAGE = ROOT / "docs" / "locality.md"
PLOT = ROOT / "docs" / "images" / "locality.png"
BEGIN, END = "<!-- tables -->", "<!-- /tables -->"
NARROW, WIDE = "256 B", "2048 B"

Row = Mapping[str, Any]


def write(modelled: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
    """Writes the part of the page between its marks, and the plot."""
    rows, times = modelled["rows"], measured["rows"]
    lines = [
        f"Modelled at {modelled['commit']} on {modelled['data']} data, with the caches of {_caches(modelled)}.",
        f"Measured at {', '.join(sorted({row['commit'] for row in times}))} on {measured['machine']['cpu']}, one"
        f" processor of {measured['machine']['cores']}, at a load of"
        f" {min(row['load'] for row in times):.1f} to {max(row['load'] for row in times):.1f}.",
    ]
    for part in (_passes, _samples, _large, _slowdowns, _vertex_orders, _graph_orders):
        lines += ["", *part(rows, times)]
    write_between(PAGE, BEGIN, END, "\n".join(lines))
    _plot(rows, PLOT)


def group(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row["group"] == name]


def _caches(modelled: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{name} {size / 2**10:,.0f} KiB" for name, size in modelled["machine"]["caches"].items())
    return f"this processor ({sizes}), an A100 (40 MiB) and an H100 (50 MiB)"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def _passes(rows: Sequence[Row], _: Sequence[Row]) -> list[str]:
    found = group(rows, "passes")
    pairs: dict[str, dict[str, Row]] = {}
    for row in found:
        pairs.setdefault(row["graph"], {})[row["pass"]] = row
    cells = []
    for key, each in pairs.items():
        forward, backward = each["forward"], each["backward"]
        line = [key, f"{forward['edges']:,}", f"{forward['rows_read']:,} / {backward['rows_read']:,}"]
        for state, width, cache in (
            ("from empty", NARROW, "a100 L2"),
            ("from empty", WIDE, "a100 L2"),
            ("repeated", NARROW, "L1"),
            ("repeated", WIDE, "L1"),
            ("repeated", WIDE, "L2"),
        ):
            rates = [one[state][width].get(cache) for one in (forward, backward)]
            line.append(" / ".join("-" if rate is None else f"{rate:.1%}" for rate in rates))
        cells.append(line)
    header = ["semantic graph", "edges", "rows read", "A100 L2, 256 B", "A100 L2, 2 KiB", "L1, 256 B", "L1, 2 KiB"]
    return [
        "### Modelled: hit rates of gathers, forward / backward",
        "",
        "Columns of the A100 begin with an empty cache; those of this processor are of a pass that is repeated.",
        "",
        *table([*header, "L2, 2 KiB"], cells),
    ]


def _samples(rows: Sequence[Row], _: Sequence[Row]) -> list[str]:
    found = group(rows, "passes")
    by_size = (
        [row for row in found if row["sample"]["items"] >= 2000],
        [row for row in found if row["sample"]["items"] < 2000],
    )
    lines = ["### Modelled: what sampling loses", ""]
    for name, each in zip(("2,000 distinct rows and more", "fewer"), by_size, strict=True):
        if each:
            mean = statistics.mean(row["sample"]["mean_error"] for row in each)
            most = max(row["sample"]["largest_error"] for row in each)
            lines.append(
                f"- {len(each)} passes over {name}, one row in {round(1 / each[0]['sample']['rate'])}: hit rates"
                f" are off by {100 * mean:.2f} points on average over all sizes of cache and three seeds, at most by"
                f" {100 * most:.1f}."
            )
    return lines


def _large(rows: Sequence[Row], _: Sequence[Row]) -> list[str]:
    cells = []
    for row in group(rows, "large"):
        line = [row["graph"], row["pass"], f"{row['edges']:,}", f"{row['rows']:,}"]
        for width in (NARROW, WIDE):
            rate, spread = row["from empty"][width]["a100 L2"], row["spread"][width]["a100 L2"]
            known = row.get("exact", {}).get(width, {}).get("a100 L2")
            line += [f"{rate:.1%} ({100 * spread:.1f})", "-" if known is None else f"{known:.1%}"]
        cells.append(line)
    if not cells:
        return []
    header = ["relation", "pass", "edges", "rows", "256 B, sampled", "exact", "2 KiB, sampled", "exact"]
    return [
        "### Modelled: large relations in the A100's second level",
        "",
        "From an empty cache. In brackets: highest less lowest of three samples of one row in 50, in points.",
        "",
        *table(header, cells),
    ]


def _slowdowns(_: Sequence[Row], times: Sequence[Row]) -> list[str]:
    ranks = group(times, "ranks")
    if not ranks:
        return []
    levels = {row["kernel"]: row for row in group(times, "levels")}
    names = list(next(iter(levels.values()))["ns"])
    lines = ["### Measured: slowdowns against resident gathers, beside modelled ones", ""]
    lines += ["Costs of levels are those of rows with 1 edge / with 64.", ""]
    header = ["graphs", "kernel", "how many", "Spearman", "of the miss rate alone", "rows never quiet"]
    header += [f"{name}, ns a row" for name in names]
    cells = []
    for row in ranks:
        own = levels[row["kernel"]]
        line = [row["of"], row["kernel"], row["graphs"], f"**{row['spearman']:.2f}**"]
        line += [f"{row['spearman_of_miss_rate']:.2f}"]
        line += [row["never_quiet"], *(f"{own['ns'][name][0]:.0f} / {own['ns'][name][-1]:.1f}" for name in names)]
        cells.append(line)
    lines += table(header, cells)
    for of in dict.fromkeys(row["of"] for row in ranks):
        lines += ["", f"Rank by measured slowdown / by the modelled one, and the measured slowdown, {of}:", ""]
        lines += _ranked([row for row in group(times, "slowdowns") if row["of"] == of], list(levels))
    return lines


def _ranked(rows: Sequence[Row], kernels: Sequence[str]) -> list[str]:
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    found = {(row["kernel"], row["graph"]): row for row in rows}
    ordered = {
        (kernel, key): _ranks([found[kernel, graph][key] for graph in graphs])
        for kernel in kernels
        for key in ("slowdown", "predicted")
    }
    cells = []
    for place, graph in enumerate(graphs):
        line = [graph]
        for kernel in kernels:
            row = found[kernel, graph]
            mine, theirs = ordered[kernel, "slowdown"][place], ordered[kernel, "predicted"][place]
            line.append(f"{mine} / {theirs} ({row['slowdown']:.2f}x{'' if row['quiet'] else ', noisy'})")
        cells.append(line)
    return table(["semantic graph", *kernels], cells)


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda place: values[place])
    return [order.index(place) + 1 for place in range(len(values))]


def _vertex_orders(rows: Sequence[Row], times: Sequence[Row]) -> list[str]:
    found = group(times, "vertex orders")
    if not found:
        return []
    rates: dict[str, dict[str, Row]] = {}
    for row in group(rows, "vertex orders"):
        rates.setdefault(row["graph"], {})[row["order"]] = row["repeated"]
    names = list(dict.fromkeys(name for row in found for name in row["ratio"]))
    cells = []
    for row in found:
        line = [row["graph"], f"{row['op']}, {row['implementation']}"]
        for name in names:
            ratio = row["ratio"].get(name)
            rate = rates.get(row["graph"], {}).get(name)
            told = "" if ratio is None else f"{ratio:.2f}x"
            line.append(told + ("" if rate is None or ratio is None else f" ({rate[NARROW]['L1']:.0%})"))
        cells.append([*line, f"{row['noise']:.0%}" + ("" if row["quiet"] else ", never quiet")])
    return [
        "### Measured: other orders of vertices, beside modelled hit rates",
        "",
        "Time over that of the order in which the data came, forward, 256 B a row; in brackets the *modelled* hit rate"
        " of the first-level cache.",
        "",
        *table(["semantic graph", "kernel", *names, "noise"], cells),
    ]


def _graph_orders(rows: Sequence[Row], times: Sequence[Row]) -> list[str]:
    modelled = {(row["dataset"], row["order"]): row for row in group(rows, "graph orders")}
    cells = []
    for row in group(times, "graph orders"):
        for name, ratio in row["ratio"].items():
            rates = modelled.get((row["dataset"], name))
            told = "-" if rates is None else " / ".join(f"{rates['repeated'][row['row']][c]:.1%}" for c in ("L1", "L2"))
            cells.append([row["dataset"], row["row"], name, told, f"{ratio:.3f}x", f"{row['noise']:.0%}"])
    if not cells:
        return []
    header = ["graphs", "row", "order", "modelled hit rate, L1 / L2", "time, of the first order", "noise"]
    return ["### Other orders of semantic graphs", "", *table(header, cells)]


def _plot(rows: Sequence[Row], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, constrained_layout=True)
    found = group(rows, "passes")
    for axis, dataset in zip(axes, dict.fromkeys(row["graph"].split()[0] for row in found), strict=False):
        for row in found:
            if row["graph"].split()[0] != dataset or (row["what"] == "metapath" and row["pass"] == "backward"):
                continue
            name = row["graph"].split()[1] + ("" if row["what"] == "metapath" else f" {row['pass']}")
            if row["what"] == "relation" and row["pass"] == "backward":
                continue
            style = "-" if row["what"] == "metapath" else ":"
            axis.plot(CURVE_ROWS, row["repeated curve"], style, label=name.removesuffix(" forward"))
        axis.set_xscale("log", base=2)
        axis.set_xlim(16, 2**15)
        axis.set_xlabel("cache, rows")
        axis.set_title(dataset.upper())
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[0].set_ylabel("modelled hit rate of gathers")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
