"""The tables of docs/gpu.md, from the JSON of a run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.gpu.devices import GPUS

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
SHOWN = "h100"
MIB = 2**20


def write_page(results: Mapping[str, Any]) -> None:
    """Replaces what stands between the page's `<!-- compiled -->` marks."""
    text = PAGE.read_text(encoding="utf-8")
    made = "\n".join(["<!-- compiled -->", *_lines(results), "<!-- /compiled -->"])
    PAGE.write_text(re.sub(r"<!-- compiled -->.*?<!-- /compiled -->", lambda _: made, text, flags=re.S), "utf-8")


def _lines(results: Mapping[str, Any]) -> list[str]:
    rows = [row for row in results["rows"] if "skipped" not in row]
    gpus = [row for row in rows if row["gpu"] in GPUS]
    lines = [
        f"Compiled for a {GPUS[SHOWN].name} by JAX {results['versions']['jax']}, on a machine without one, at the"
        " commit that each row names; what was compiled for other kinds is in `bench/results/gpu-compile.json`.",
        "",
        "| recipe | program | devices | implementation | temporaries, MiB | kernels | launches | float scatters |"
        " collectives | compiled in, s | commit |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in gpus:
        if row["gpu"] == SHOWN:
            collectives = ", ".join(
                f"{each['kind']} {each['bytes']:,} B beside {each['kernels_meanwhile']} kernels"
                for each in row["collectives"]
            )
            cells = [
                *(row["case"].replace("_", " "), row["program"], row["devices"], ", ".join(row["implementations"])),
                *(f"{row['temp_bytes'] / MIB:,.1f}", row["kernels"], row["launches"], len(row["float_scatters"])),
                *(collectives or "none", f"{row['compile_s']:.0f}", row["commit"]),
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "Updates by kind of device: MiB of temporaries, and kernels.", ""]
    lines += [f"| recipe | devices | {' | '.join(GPUS)} |", f"|---|---|{'---|' * len(GPUS)}"]
    updates = [row for row in gpus if row["program"] == "update"]
    for case, devices in dict.fromkeys((row["case"], row["devices"]) for row in updates):
        own = {row["gpu"]: row for row in updates if (row["case"], row["devices"]) == (case, devices)}
        cells = [f"{own[gpu]['temp_bytes'] / MIB:,.1f}, {own[gpu]['kernels']:,}" if gpu in own else "" for gpu in GPUS]
        lines.append(f"| {case.replace('_', ' ')} | {devices} | {' | '.join(cells)} |")
    skipped = [f"- {row['case']}: {row['skipped']}" for row in results["rows"] if "skipped" in row]
    return lines + (["", "Not compiled:", "", *skipped] if skipped else [])
