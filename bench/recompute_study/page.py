"""docs/recompute.md: the page that the stored results make; every figure in it is theirs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.recompute_study.budgets import Cell, measured, noise, step_s
from bench.recompute_study.pareto import peak_bytes
from jhgnn.config.remat import POLICIES
from jhgnn.runtime.files import write_text

DOCUMENT = Path(__file__).parents[2] / "docs" / "recompute.md"
GUIDE = Path(__file__).parent / "guide.md"
"""What the page says before its figures."""
MIB = 2**20


def write_document(results: list[dict[str, Any]], path: Path) -> None:
    """Writes the page: the guide, the two questions, and a section a recipe."""
    lines = [GUIDE.read_text(encoding="utf-8").rstrip(), "", "## What recomputing NA costs", ""]
    lines += _cost_of_na(results)
    lines += ["", "## How far below a store-everything stack a fused NA lands", ""]
    lines += _fused_against_stored(results)
    lines += ["", "## Does the search find the fastest?", ""]
    lines += _search(results)
    lines += ["", "## All figures", ""]
    lines += [
        "*needs*: the smallest `training.memory_budget`. *temporaries*: the step's, by XLA's buffer assignment."
        " *measured*: growth of the process's high-water mark over its steps, in a fresh process. Steps are the"
        " fastest of those taken in turns; *noise* is their median above the fastest. Policies in one row compile to"
        " the same program.",
    ]
    for each in results:
        lines += ["", f"### {each['name']}", "", *_section(each)]
    write_text(path, "\n".join(lines) + "\n")


def _section(each: dict[str, Any]) -> list[str]:
    rows = []
    for group in _programs(each["cells"]):
        cell, names = group[0], ", ".join(member["remat"] for member in group)
        base = _of(each["cells"], cell["implementation"], "none") or cell
        growth = f"{peak_bytes(cell) / MIB:,.0f}" if "steps_peak_bytes" in cell else "-"
        kept = {stage: num for stage, num in cell["kept"].items() if num >= MIB / 20}
        rows.append(
            [
                cell["implementation"],
                names,
                f"{cell['needed_bytes'] / MIB:,.0f}",
                f"{cell['temp_bytes'] / MIB:,.1f}",
                growth,
                f"{cell['flops'] / base['flops']:.2f}x",
                f"{step_s(cell) * 1e3:,.1f}",
                f"{noise(cell):.0%}",
                ", ".join(f"{stage} {num / MIB:,.1f}" for stage, num in sorted(kept.items())) or "-",
            ]
        )
    for cell in each["cells"]:
        if "not_run" in cell:
            row = [cell["implementation"], cell["remat"], f"{cell['needed_bytes'] / MIB:,.0f}"]
            rows.append([*row, f"{cell['temp_bytes'] / MIB:,.1f}", "-", "-", f"not run: {cell['not_run']}", "-", "-"])
    for cell in each["peers"]:
        if cell.get("steps_s"):
            growth = f"{peak_bytes(cell) / MIB:,.0f}"
            times = (f"{step_s(cell) * 1e3:,.1f}", f"{noise(cell):.0%}")
            rows.append([cell["implementation"], cell["variant"].replace("|", "/"), "-", "-", growth, "-", *times, "-"])
    header = ["implementation", "policy", "needs, MiB", "temporaries, MiB", "measured, MiB", "FLOPs", "step, ms"]
    lines = [
        f"{each['machine']}, JAX {each['jax']}, commit {each['commit']}, load average {each['load_average']:.1f}."
        + (f" The search took {each['search_s']:.1f} s with nothing cached." if each["search_s"] else ""),
        "",
        f"![Memory against time](images/recompute_{each['name']}.png)",
        "",
        *table([*header, "noise", "kept by stage, MiB"], rows),
    ]
    refused = [cell for cell in [*each["cells"], *each["peers"]] if "refused" in cell]
    lines += [f"\n{cell['implementation']}: {cell['refused']}" for cell in refused]
    if each["recommended"]:
        best = [
            f"from {row['budget_bytes'] / MIB:,.0f} MiB `{row['implementation']}` with `{row['remat']}`"
            f" ({row['step_s'] * 1e3:,.1f} ms)"
            for row in each["recommended"]
        ]
        lines += ["", "Recommended: " + "; ".join(best) + "."]
    if each["out_of_order"]:
        lines += ["", "Out of order in memory: " + "; ".join(each["out_of_order"]) + "."]
    return lines


def _cost_of_na(results: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for each in results:
        for implementation in ("segment", "fanout"):
            none, na = (_of(each["cells"], implementation, remat) for remat in ("none", "na"))
            if none is None or na is None or none["program"] == na["program"] or not na.get("steps_s"):
                continue
            rows.append(
                [
                    each["name"],
                    implementation,
                    f"{none['temp_bytes'] / MIB:,.1f}",
                    f"{na['temp_bytes'] / MIB:,.1f}",
                    f"{na['temp_bytes'] / none['temp_bytes']:.2f}",
                    f"{na['flops'] / none['flops']:.2f}",
                    _ratio_of_times(na, none, 2),
                    f"{max(noise(each) for each in (na, none) if each.get('steps_s')):.0%}",
                ]
            )
    header = ["recipe", "implementation", "none, MiB", "na, MiB", "memory", "FLOPs", "time", "noise"]
    return table(header, rows) if rows else ["Nothing of this was measured yet."]


def _fused_against_stored(results: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for each in results:
        native, stored = (_of(each["cells"], implementation, "none") for implementation in ("native", "segment"))
        if native is None or not native.get("steps_s"):
            continue
        peers = {cell["implementation"]: cell for cell in each["peers"] if cell.get("steps_s")}

        def against(cell: Cell | None, native: Cell = native) -> list[str]:
            if cell is None:
                return ["-", "-"]
            time = _ratio_of_times(cell, native, 1)
            if "temp_bytes" in cell:
                return [f"{cell['temp_bytes'] / native['temp_bytes']:.1f}x", time]
            if "steps_peak_bytes" not in native:
                return ["-", time]
            return [f"{peak_bytes(cell) / max(1, peak_bytes(native)):.1f}x", time]

        own = [f"{native['temp_bytes'] / MIB:,.1f}", f"{step_s(native) * 1e3:,.1f}"]
        rows.append([each["name"], *own, *against(stored), *against(peers.get("dgl")), *against(peers.get("pyg"))])
    header = ["recipe", "native, MiB", "ms", "segment memory", "time", "DGL memory", "time", "PyG memory", "time"]
    return table(header, rows) if rows else ["Nothing of this was measured yet."]


def _search(results: Sequence[dict[str, Any]]) -> list[str]:
    checks = [(each["name"], row) for each in results for row in each["search_check"]]
    rows = [
        [
            *(name, row["implementation"], f"{row['budget_bytes'] / MIB:,.0f}", row["chosen"], row["fastest"]),
            *(f"{row['regret']:+.0%}", f"{row['noise']:.0%}"),
        ]
        for name, row in checks
        if row["chosen"] != row["fastest"]
    ]
    within = sum(row["regret"] <= max(0.05, row["noise"]) for _, row in checks)
    lines = [
        f"Of {len(checks)} choices (an implementation and each budget at which one more policy fits), {within} are the"
        " measured fastest, or as fast within 5 % or the noise. Those that differ:",
        "",
    ]
    header = ["recipe", "implementation", "budget, MiB", "chosen", "fastest", "slower by", "noise"]
    return lines + table(header, rows) if rows else lines[:1]


def _programs(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of one compiled program together."""
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(measured(cells), key=lambda each: POLICIES.index(each["remat"])):
        groups.setdefault(cell["program"], []).append(cell)
    order = list(dict.fromkeys(cell["implementation"] for cell in measured(cells)))
    return sorted(groups.values(), key=lambda group: order.index(group[0]["implementation"]))


def _of(cells: Sequence[Cell], implementation: str, remat: str) -> Cell | None:
    """That cell, compiled at least."""
    wanted = (implementation, remat)
    found = [cell for cell in cells if "flops" in cell and (cell["implementation"], cell["remat"]) == wanted]
    return found[0] if found else None


def _ratio_of_times(cell: Cell, other: Cell, digits: int) -> str:
    ran = cell.get("steps_s") and other.get("steps_s")
    return f"{step_s(cell) / step_s(other):.{digits}f}" if ran else "not run"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
