"""Nsight Compute's figures beside a profile: achieved DRAM traffic, L2 hits and stall reasons by kernel.

`measure` runs the profiled program once more under `ncu`; `read_csv` reads what `ncu --csv --page raw` prints: a row of
names, a row of units, then a row a launch. Kernels are joined to stages by the kernel names that the GPU trace saw
beside their HLO ops, else by XLA's way of naming kernels after ops (`loop_add_fusion.1` is `loop_add_fusion_1`).
"""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jhgnn.errors import InputError
from jhgnn.profiling.scopes import Attribution

METRICS = {
    "seconds": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes.sum",
    "dram_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_share": "lts__t_sector_hit_rate.pct",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_share": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
}
"""Our name -> Nsight Compute's. Shares and the occupancy are 0 to 1; traffic is in bytes."""
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
STALLS = (
    *("long_scoreboard", "short_scoreboard", "lg_throttle", "mio_throttle", "tex_throttle", "wait", "barrier"),
    *("math_pipe_throttle", "not_selected", "branch_resolving", "dispatch_stall", "no_instruction", "drain", "membar"),
    *("imc_miss", "sleeping"),
)
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "drain", "membar")
"""Waiting for global or local memory: "memory dependency" and "memory throttle" of the characterization paper."""
_UNITS = {"": 1.0, "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "%": 0.01} | {
    **dict.fromkeys(("nsecond", "ns"), 1e-9),
    **dict.fromkeys(("usecond", "us"), 1e-6),
    **dict.fromkeys(("msecond", "ms"), 1e-3),
    **dict.fromkeys(("second", "s"), 1.0),
    **dict.fromkeys(("ratio", "inst"), 1.0),
}


def find() -> str:
    """The path of the tool.

    Raises:
        InputError: it is not installed.
    """
    path = shutil.which("ncu")
    if path is None:
        raise InputError("--ncu: Nsight Compute's command `ncu` is not on PATH; install it, or leave --ncu out")
    return path


def command(watched: Sequence[str], kernels: str = "") -> list[str]:
    """The command that runs another one under `ncu`, which prints what `read_csv` reads.

    Clocks are left as they are: fixing them would change the device for others, and times would be none of training.

    Args:
        watched: the command.
        kernels: only those, as `ncu -k` names them; all where empty.

    Raises:
        InputError: `ncu` is not installed.
    """
    stalls = [f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS]
    found = [find(), "--csv", "--page", "raw", "--target-processes", "all", "--clock-control", "none"]
    found += ["--metrics", ",".join([*METRICS.values(), *stalls])]
    return [*found, *(["-k", kernels] if kernels else []), *watched]


def measure(folder: Path) -> Path:
    """Runs the recipe of a profile's folder for one step under `ncu`; the CSV that it printed.

    Raises:
        InputError: `ncu` is not installed, may not read the counters, or profiled nothing.
    """
    replayed = [sys.executable, "-m", "jhgnn.profiling.replay", str(folder / "recipe.toml")]
    done = subprocess.run(command(replayed), capture_output=True, text=True, env=os.environ)
    if done.returncode or "ERR_NVGPUCTRPERM" in done.stdout:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "==ERROR==" in line]
        raise InputError(f"--ncu: {(lines or ['exit code ' + str(done.returncode)])[0].removeprefix('==ERROR== ')}")
    path = folder / "ncu.csv"
    temporary = path.with_name(".ncu.csv.tmp")
    temporary.write_text(done.stdout, encoding="utf-8")
    temporary.replace(path)
    return path


def read_csv(path: Path) -> list[dict[str, Any]]:
    """One row a launch: `kernel`, `grid`, `block`, the names of `METRICS`, and `stalls` by reason; None where absent.

    Raises:
        InputError: the file cannot be read, or is not what `ncu --csv --page raw` prints.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise InputError(f'{path}: no line that begins with "ID"; need the output of `ncu --csv --page raw`')
    names, *rows = csv.reader(io.StringIO("\n".join(line for line in lines[start:] if not line.startswith("=="))))
    if "Kernel Name" not in names or not rows:
        raise InputError(f"{path}: has no column 'Kernel Name' or no launch; need the output of `ncu --csv --page raw`")
    units, *rows = rows
    found = []
    for number, row in enumerate(rows, start + 3):
        if len(row) != len(names):
            raise InputError(f"{path}:{number}: {len(row)} values for {len(names)} columns: truncated?")
        values = dict(zip(names, row, strict=True))
        scales = dict(zip(names, units, strict=True))

        def number_of(
            name: str, values: Mapping[str, str] = values, scales: Mapping[str, str] = scales
        ) -> float | None:
            return _number(values[name], scales[name], name, path) if name in values else None

        entry: dict[str, Any] = {"kernel": _base_name(values["Kernel Name"])}
        entry |= {"grid": values.get("Grid Size", ""), "block": values.get("Block Size", "")}
        entry |= {ours: number_of(theirs) for ours, theirs in METRICS.items()}
        stalls = {match.group(1): number_of(name) for name in names if (match := STALL.fullmatch(name))}
        entry["stalls"] = {reason: value for reason, value in stalls.items() if value is not None}
        found.append(entry)
    return found


def merge(
    profile: dict[str, Any], launches: Sequence[Mapping[str, Any]], attributions: Mapping[str, Attribution]
) -> None:
    """Adds `ncu` to a profile: figures by stage and by kernel, and the share of launches' time that was joined."""
    by_kernel: dict[str, str] = {}
    for name in attributions:
        by_kernel.setdefault(re.sub(r"[^A-Za-z0-9_]", "_", name), name)
    for row in (profile.get("gpu") or {}).get("kernels", ()):
        if row["stage"] != "other":
            by_kernel[row["kernel"]] = row["op"]
    stages: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    kernels: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    joined_s = total_s = 0.0
    for launch in launches:
        seconds = launch["seconds"] or 0.0
        total_s += seconds
        op = by_kernel.get(launch["kernel"])
        main = attributions[op].main if op is not None and op in attributions else None
        kernels[launch["kernel"]].append(launch)
        if main is not None:
            joined_s += seconds
        stages[(main.stage, main.direction) if main else ("other", "none")].append(launch)
    profile["ncu"] = {
        "stages": [
            {"stage": stage, "direction": direction} | figures(members)
            for (stage, direction), members in sorted(stages.items())
        ],
        "kernels": [
            {"kernel": name, "op": by_kernel.get(name, "")} | figures(members)
            for name, members in sorted(kernels.items(), key=lambda item: -_seconds(item[1]))
        ],
        "joined": joined_s / total_s if total_s else 0.0,
    }


def figures(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums of time and traffic, means of the rest weighted by time; stalls as shares of all stalls."""
    result: dict[str, Any] = {"launches": len(members), "seconds": _seconds(members)}
    traffic = [each["dram_bytes"] for each in members if each["dram_bytes"] is not None]
    result["dram_bytes"] = sum(traffic) if traffic else None
    for name in ("dram_share", "l2_hit_share", "occupancy", "sm_share"):
        known = [(each[name], each["seconds"] or 0.0) for each in members if each[name] is not None]
        weight = sum(seconds for _, seconds in known)
        result[name] = sum(value * seconds for value, seconds in known) / weight if weight else None
    stalls: dict[str, float] = defaultdict(float)
    for each in members:
        for reason, value in each["stalls"].items():
            stalls[reason] += value * (each["seconds"] or 0.0)
    total = sum(stalls.values())
    result["stalls"] = {reason: value / total for reason, value in stalls.items()} if total else {}
    result["memory_stall_share"] = sum(result["stalls"].get(name, 0.0) for name in MEMORY_STALLS) if total else None
    return result


def _seconds(members: Sequence[Mapping[str, Any]]) -> float:
    return sum(each["seconds"] or 0.0 for each in members)


def _base_name(name: str) -> str:
    """`void cub::Scan<int>(int *)` is `Scan`: without result, namespaces, template and arguments."""
    return re.sub(r"[<(].*", "", name.removeprefix("void ")).rpartition("::")[2].strip()


def _number(text: str, unit: str, name: str, path: Path) -> float | None:
    """A value in seconds, bytes or 0 to 1; None where ncu has none (`n/a`, or nothing)."""
    if text.strip() in ("", "n/a", "nan"):
        return None
    scale = _UNITS.get(unit.strip().lower())
    if scale is None:
        raise InputError(f"{path}: {name} is in {unit!r}; need one of {', '.join(filter(None, _UNITS))}")
    try:
        return float(text.replace(",", "")) * scale
    except ValueError:
        raise InputError(f"{path}: {name} is {text!r}, not a number") from None
