"""A profile, or two of them, as tables on stdout."""

from collections.abc import Mapping, Sequence
from typing import Any

from jhgnn.runtime.console import Say

STAGE_ORDER = ("SAMPLE", "LOAD", "FP", "NA", "SF", "LC", "SYNC", "PU", "other")
DIRECTION_ORDER = ("forward", "backward", "recompute", "update", "none")
Profile = Mapping[str, Any]


def ordered_stages(profile: Profile) -> list[dict[str, Any]]:
    """The rows of `stages` in the order of a step: forward stages, then backward, recomputed, the update."""

    def place(row: Mapping[str, Any]) -> tuple[int, int]:
        stage = STAGE_ORDER.index(row["stage"]) if row["stage"] in STAGE_ORDER else len(STAGE_ORDER)
        return DIRECTION_ORDER.index(row["direction"]), stage

    return sorted(profile["stages"], key=place)


def figure(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def print_profile(say: Say, profile: Profile) -> None:
    """Stages with time, traffic and rates, then what was attributed and how."""
    step = profile["step"]
    rows = [
        [
            row["stage"],
            row["direction"],
            figure(row["seconds"], 1e3, 3),
            figure(row["share"], 100, 1),
            figure(row["flops"], 1e-6),
            figure(row["bytes"], 1e-6),
            figure(row["intensity"]),
            figure(row["flops_per_s"], 1e-9),
            figure(row["bytes_per_s"], 1e-9),
        ]
        for row in ordered_stages(profile)
    ]
    rows += [[name, "host", figure(seconds, 1e3, 3)] + ["-"] * 6 for name, seconds in profile["host"]["parts"].items()]
    rows += [
        [name, "hidden", figure(seconds, 1e3, 3)] + ["-"] * 6 for name, seconds in profile["host"]["hidden"].items()
    ]
    idle = sum(profile["idle"].values())
    rows.append(["idle", "host", figure(idle, 1e3, 3), figure(idle / step["wall_s"], 100, 1), *["-"] * 5])
    columns = ("stage", "pass", "ms", "% of step", "MFLOP", "MB", "FLOP/B", "GFLOP/s", "GB/s")
    run = profile["run"]
    say.table(f"{run['model']} on {run['data']}: {step['wall_s'] * 1e3:.2f} ms a step (traced)", columns, rows)
    found = profile["attribution"]
    say(
        f"attributed {found['attributed']:.2%} of op time ({found['inferred']:.1%} by data flow);"
        f" {found['crossing']:.1%} in ops that cross a stage border;"
        f" parts / measured step {step['parts_over_measured']:.3f}"
    )
    if step["tracing_overhead"] is not None:
        say(f"tracing overhead: {step['tracing_overhead']:+.1%} of the untraced step")
    if step.get("as_trained_s"):
        say(f"as it trains, with kernels started as a graph: {figure(step['as_trained_s'], 1e3)} ms")
    if profile["barriers"]:
        barred = profile["barriers"]
        say(f"barriers: step {figure(barred['slowdown'], 100, 1)} % slower, {barred['crossing']:.1%} crossing left")
    memory = profile["memory"]
    sizes = [
        f"{name} {memory[name]['total_bytes'] / 1e6:.1f} MB ({memory[name]['temp_bytes'] / 1e6:.1f} MB temporary)"
        for name in ("training", "inference")
        if memory[name]
    ]
    say("memory: " + ", ".join(sizes))
    for warning in profile["warnings"]:
        say(f"warning: {warning}")


def comparison_rows(profiles: Sequence[Profile]) -> list[tuple[str, str, float, float]]:
    """(stage, direction, seconds of A, seconds of B), absent stages as 0."""
    keys = {(row["stage"], row["direction"]): None for profile in profiles for row in ordered_stages(profile)}
    found = [{(row["stage"], row["direction"]): row["seconds"] for row in profile["stages"]} for profile in profiles]
    return [(*key, found[0].get(key, 0.0), found[1].get(key, 0.0)) for key in keys]


def print_comparison(say: Say, profiles: Sequence[Profile], names: Sequence[str]) -> None:
    """Stage by stage, with the ratio B / A."""
    rows = [
        [stage, direction, figure(a, 1e3, 3), figure(b, 1e3, 3), figure(b / a if a else None)]
        for stage, direction, a, b in comparison_rows(profiles)
    ]
    walls = [profile["step"]["wall_s"] for profile in profiles]
    rows.append(["step", "", figure(walls[0], 1e3, 3), figure(walls[1], 1e3, 3), figure(walls[1] / walls[0])])
    totals = [profile["memory"]["training"]["total_bytes"] for profile in profiles]
    ratio = totals[1] / totals[0] if totals[0] else None
    rows.append(["memory MB", "", figure(totals[0], 1e-6), figure(totals[1], 1e-6), figure(ratio)])
    say.table(f"A = {names[0]}, B = {names[1]}", ("stage", "pass", "A ms", "B ms", "B / A"), rows)
