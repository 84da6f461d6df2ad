"""`report.html`: one file without network access that shows a profile, or two side by side."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jhgnn.profiling import charts
from jhgnn.profiling.kernels import KERNEL_TYPES
from jhgnn.profiling.tables import Profile, comparison_rows, figure, ordered_stages
from jhgnn.runtime.files import write_text

_STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
_SCRIPT = (Path(__file__).parent / "report.js").read_text(encoding="utf-8")
_LEGEND = {"FP": "feature projection", "NA": "neighbor aggregation", "SF": "semantic fusion", "LC": "loss"} | {
    "PU": "parameter update",
    "idle": "",
}

_SHADES = "full: forward, paler: backward, palest: recomputed"


def write_report(profile: Profile, path: Path) -> None:
    """Writes the report of one profile."""
    run, step, found = profile["run"], profile["step"], profile["attribution"]
    title = f"{run['model']} on {run['data']}"
    memory = profile["memory"]
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=lead>{html.escape(_subtitle(run))}</p>",
        _cards(
            ("step, traced", f"{figure(step['wall_s'], 1e3)} ms"),
            ("step, untraced", f"{figure(step['untraced_s'], 1e3)} ms"),
            *([("step, as it trains", f"{figure(step['as_trained_s'], 1e3)} ms")] if step.get("as_trained_s") else []),
            ("inference", f"{figure(step['inference_s'], 1e3)} ms"),
            ("attributed", f"{found['attributed']:.1%}"),
            ("parts / measured", f"{step['parts_over_measured']:.3f}"),
            ("training memory", f"{memory['training']['total_bytes'] / 1e6:,.1f} MB"),
        ),
        *(f"<p class=warning>{html.escape(warning)}</p>" for warning in profile["warnings"]),
        "<h2>Time by stage</h2>",
        _legend(),
        charts.bars(_time_bars(profile), "ms", 1e3, "Time by stage"),
        _stage_table(profile),
        "<h2>Time by kernel type</h2>",
        _legend(KERNEL_TYPES, note=""),
        charts.bars(_kernel_bars(profile), "ms", 1e3, "Time by kernel type"),
        _kernel_table(profile),
        "<h2>Roofline</h2>",
        _roofline(profile),
        "<h2>Memory traffic by stage</h2>",
        "<p>Bytes of XLA's cost model and of the native kernels' formulas; caches may serve part of them.</p>",
        charts.bars(_byte_bars(profile), "MB", 1e-6, "Memory traffic by stage"),
        "<h2>Memory over a step</h2>",
        *_memory(profile),
        "<h2>Layers, relations, metapaths and node types</h2>",
        table(
            ("stage", "pass", "layer", "part", "ms", "% of step", "MFLOP", "MB"),
            [
                [
                    *(row["stage"], row["direction"], None if row["layer"] < 0 else row["layer"], row["part"]),
                    *(row["seconds"] * 1e3, row["share"] * 100, row["flops"] / 1e6, row["bytes"] / 1e6),
                ]
                for row in profile["parts"]
            ],
        ),
        "<h2>Host</h2>",
        _host(profile),
        *_gpu(profile),
        "<h2>Attribution</h2>",
        _attribution(profile),
        f"<h2>Ops</h2><p>The {len(profile['ops'])} longest of {profile['num_ops']}.</p>",
        table(
            ("op", "kernel", "type", "stage", "pass", "part", "source", "ms", "MFLOP", "MB", "FLOP/B"),
            [
                [
                    *(row[key] for key in ("op", "kernel", "type", "stage", "direction", "part", "source")),
                    *(row["seconds"] * 1e3, row["flops"] / 1e6, row["bytes"] / 1e6, row["intensity"]),
                ]
                for row in profile["ops"]
            ],
        ),
    ]
    write_text(path, page(f"jhgnn profile: {title}", sections))


def write_comparison(profiles: Sequence[Profile], names: Sequence[str], path: Path) -> None:
    """Writes two profiles side by side."""
    sections = ["<h1>Two profiles</h1>"]
    for letter, name, profile in zip("AB", names, profiles, strict=True):
        run = profile["run"]
        shown = f"{letter}: {run['model']} on {run['data']}; {name}"
        sections.append(f"<p class=lead>{html.escape(shown)}</p>")
    rows = []
    for stage, direction, a, b in comparison_rows(profiles):
        rows.append([stage, direction, a * 1e3, b * 1e3, b / a if a else None])
    walls = [profile["step"]["wall_s"] for profile in profiles]
    rows.append(["step", "", walls[0] * 1e3, walls[1] * 1e3, walls[1] / walls[0]])
    longest = [
        (f"{letter} {label}", parts)
        for letter, profile in zip("AB", profiles, strict=True)
        for label, parts in _time_bars(profile)
    ]
    sections += ["<h2>Time by stage</h2>", _legend(), charts.bars(longest, "ms", 1e3, "Time by stage, A and B")]
    sections.append(table(("stage", "pass", "A ms", "B ms", "B / A"), rows))
    sections.append("<h2>Memory over a step</h2>")
    highest = max(profile["memory"]["training"]["peak_live_bytes"] for profile in profiles)
    for letter, profile in zip("AB", profiles, strict=True):
        sections.append(f"<h3>{letter}</h3>")
        sections.append(charts.memory(profile["memory"]["training"], highest, f"Memory of {letter}"))
    write_text(path, page("jhgnn: two profiles", sections))


def _subtitle(run: Mapping[str, Any]) -> str:
    graphs = run["semantic_graphs"] or {}
    edges = ", ".join(f"{name} {count:,}" for name, count in list(graphs.items())[:8])
    chosen = ", ".join(sorted(set((run["implementations"] or {}).values())))
    rows = f"; rows of a step: {run['rows']}" if run.get("rows") else ""
    return f"{run['device']} ({run['platform']}), JAX {run['jax']}; edges: {edges}{rows}; implementations: {chosen}"


def _time_bars(profile: Profile) -> list[tuple[str, list[tuple[str, str, float]]]]:
    rows = _stacked(profile, "seconds")
    rows += [(name, [("host", "none", seconds)]) for name, seconds in profile["host"]["parts"].items()]
    return [*rows, ("idle", [("idle", "none", sum(profile["idle"].values()))])]


def _byte_bars(profile: Profile) -> list[tuple[str, list[tuple[str, str, float]]]]:
    return _stacked(profile, "bytes")


def _stacked(profile: Profile, key: str) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """One bar a stage, its directions on top of each other; the first bar is forward, backward and so on as wholes."""
    stages = ordered_stages(profile)
    rows = []
    for stage in dict.fromkeys(row["stage"] for row in stages):
        rows.append((stage, [(stage, row["direction"], row[key]) for row in stages if row["stage"] == stage]))
    return rows


def _kernel_bars(profile: Profile) -> list[tuple[str, list[tuple[str, str, float]]]]:
    found: dict[str, dict[str, float]] = {}
    for row in ordered_stages(profile):
        found.setdefault(f"{row['stage']} {row['direction']}", {})
    for row in profile["kernel_types"]:
        found[f"{row['stage']} {row['direction']}"][row["type"]] = row["seconds"]
    return [
        (label, [(kind, "forward", by_type[kind]) for kind in KERNEL_TYPES if kind in by_type])
        for label, by_type in found.items()
    ]


def _roofline(profile: Profile) -> str:
    ceilings = profile["roofline"]["ceilings"]
    if not ceilings:
        return "<p>No ceilings were measured beside this trace.</p>"
    points = [
        (row["stage"], row["direction"], row["intensity"] or 0.0, row["flops_per_s"] or 0.0, row["seconds"])
        for row in ordered_stages(profile)
    ]
    note = (
        "<p>Ceilings are measured on this machine (a copy of 128 MiB, a float32 matmul); the area of a circle is time."
        " A stage whose rows stay in cache may lie above the memory ceiling.</p>"
    )
    return charts.roofline(points, ceilings) + note


def _memory(profile: Profile) -> list[str]:
    memory = profile["memory"]
    programs = [(name, memory[name]) for name in ("training", "inference") if memory[name]]
    highest = max(program["peak_live_bytes"] for _, program in programs)
    parts = []
    for name, program in programs:
        parts.append(
            f"<h3>{name}</h3><p>{program['total_bytes'] / 1e6:,.1f} MB: arguments"
            f" {program['argument_bytes'] / 1e6:,.1f} MB, temporaries {program['temp_bytes'] / 1e6:,.1f} MB; peak of"
            f" live values {program['peak_live_bytes'] / 1e6:,.1f} MB at <code>{html.escape(program['peak_op'])}</code>"
            f" ({html.escape(program['source'])}).</p>"
        )
        parts.append(charts.memory(program, highest, f"Memory over a step: {name}"))
    kept = [[stage, size / 1e6] for stage, size in memory["residuals"].items()]
    parts += ["<h3>Kept for the backward pass</h3>", table(("stage", "MB"), kept)]
    return parts


def _host(profile: Profile) -> str:
    rows = [["before training", name, seconds * 1e3] for name, seconds in profile["preparation"].items()]
    rows += [["in a step", name, seconds * 1e3] for name, seconds in profile["host"]["parts"].items()]
    rows += [["behind ops", name, seconds * 1e3] for name, seconds in profile["host"]["hidden"].items()]
    rows += [["idle", name, seconds * 1e3] for name, seconds in profile["idle"].items()]
    return table(("when", "what", "ms"), rows)


def _gpu(profile: Profile) -> list[str]:
    """Streams and kernels of a GPU trace, and Nsight Compute's figures, where there are any."""
    sections = []
    if profile.get("gpu"):
        columns: Sequence[str] = ("device", "stream", "kernels a step", "copies a step", "busy ms")
        rows = [
            [row["device"], row["stream"], row["kernels"], row["copies"], row["busy_s"] * 1e3]
            for row in profile["gpu"]["streams"]
        ]
        sections += ["<h2>GPU streams</h2>", table(columns, rows)]
        columns = (
            "kernel",
            "op",
            "stage",
            "pass",
            "type",
            "stream",
            "ms",
            "launches",
            "occupancy",
            "launch us",
            "grid",
            "block",
        )
        rows = [
            [
                *(row[key] for key in ("kernel", "op", "stage", "direction", "type", "stream")),
                *(row["seconds"] * 1e3, row["launches"], row["occupancy"]),
                None if row["launch_delay_s"] is None else row["launch_delay_s"] * 1e6,
                *(row[key] or "" for key in ("grid", "block")),
            ]
            for row in profile["gpu"]["kernels"]
        ]
        sections += ["<h2>GPU kernels</h2>", table(columns, rows)]
    if profile.get("ncu"):
        sections += [
            "<h2>Nsight Compute</h2>",
            f"<p>{profile['ncu']['joined']:.1%} of the kernels' time belongs to a stage.</p>",
            table(
                ("stage", "pass", "launches", "ms", "DRAM MB", "DRAM % of peak", "L2 hits %", "memory stalls %"),
                [
                    [
                        *(row["stage"], row["direction"], row["launches"], row["seconds"] * 1e3),
                        None if row["dram_bytes"] is None else row["dram_bytes"] / 1e6,
                        *(
                            None if row[key] is None else row[key] * 100
                            for key in ("dram_share", "l2_hit_share", "memory_stall_share")
                        ),
                    ]
                    for row in profile["ncu"]["stages"]
                ],
            ),
        ]
    return sections


def _attribution(profile: Profile) -> str:
    found = profile["attribution"]
    text = (
        f"{found['named']:.2%} of op time is in ops that name their stage, {found['inferred']:.2%} by data flow,"
        f" {found['unattributed']:.2%} is unattributed. {found['crossing']:.2%} is in ops that cross a stage border;"
        f" splitting them by their work moved {found['split_off']:.2%} away from the main stage."
    )
    barred = profile["barriers"]
    if barred:
        text += (
            f" With barriers at the stage borders the step takes {figure(barred['slowdown'], 100, 1)} % longer and"
            f" {barred['crossing']:.2%} still crosses."
        )
    return f"<p>{html.escape(text)}</p>"


def _stage_table(profile: Profile) -> str:
    columns = ("stage", "pass", "ms", "% of step", "MFLOP", "MB", "FLOP/B", "GFLOP/s", "GB/s", "bound")
    rows = []
    for row in ordered_stages(profile):
        rates = [None if row[key] is None else row[key] / 1e9 for key in ("flops_per_s", "bytes_per_s")]
        sums = (row["seconds"] * 1e3, row["share"] * 100, row["flops"] / 1e6, row["bytes"] / 1e6)
        rows.append([row["stage"], row["direction"], *sums, row["intensity"], *rates, row["bound"] or ""])
    return table(columns, rows)


def _kernel_table(profile: Profile) -> str:
    rows = [
        [
            *(row["stage"], row["direction"], row["kernel"], row["type"], row["seconds"] * 1e3, row["executions"]),
            *(row["intensity"], None if row["bytes_per_s"] is None else row["bytes_per_s"] / 1e9),
        ]
        for row in profile["kernels"]
    ]
    return table(("stage", "pass", "kernel", "type", "ms", "runs", "FLOP/B", "GB/s"), rows)


def _cards(*cards: tuple[str, str]) -> str:
    shown = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in cards)
    return f"<div class=cards>{shown}</div>"


def _legend(names: Mapping[Any, str] = _LEGEND, note: str = _SHADES) -> str:
    keys = "".join(
        f'<span><i style="background:{charts.colour(key)}"></i>{key} {name}</span>' for key, name in names.items()
    )
    return f"<p class=legend>{keys}{note}</p>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table that sorts by a click, or Enter, on a heading."""
    head = "".join(f"<th tabindex=0 role=button>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f"<td>{html.escape(value)}</td>"
    if value is None:
        return '<td class=n data-v="-1">-</td>'
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
    return f'<td class=n data-v="{value}">{shown}</td>'


def page(title: str, sections: Sequence[str]) -> str:
    """A whole page of sections of HTML, with the report's style and script inside."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>"
        + "\n".join(sections)
        + f"</main><script>{_SCRIPT}</script></body></html>\n"
    )
