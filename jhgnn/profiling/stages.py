"""From a profile folder to `profile.json`: time, operations, bytes and memory by stage, part and kernel.

The schema is documented in docs/profiling.md; `SCHEMA` counts its versions.
"""

import dataclasses
import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jhgnn.errors import InputError
from jhgnn.profiling import gpu, hlo, memory, ncu, occupancy, roofline, scopes, xplane
from jhgnn.profiling.costs import Cost, cost
from jhgnn.profiling.kernels import kernel_name, kernel_type
from jhgnn.profiling.scopes import Attribution, Scope

SCHEMA = 1
MAX_OPS = 400
"""Ops listed one by one, longest first; the sums hold all of them."""
MAX_POINTS = 600
"""Points of a stored memory timeline; a longer schedule is thinned, its peak kept."""


@dataclasses.dataclass
class _Sum:
    """Seconds, executions and costs of one cell of a table, of one step."""

    seconds: float = 0.0
    executions: float = 0.0
    cost: Cost = dataclasses.field(default_factory=Cost)

    def add(self, seconds: float, executions: float, cost: Cost, share: float) -> None:
        self.seconds += seconds * share
        self.executions += executions * share
        scaled = Cost(*(value * share * executions for value in dataclasses.astuple(cost)))
        self.cost = self.cost + scaled

    def row(self, wall_s: float, ceilings: Mapping[str, float] | None) -> dict[str, Any]:
        """The figures of the cell; rates are null where it took no time, the intensity where it moved no bytes."""
        operations = self.cost.flops + self.cost.transcendentals
        intensity = operations / self.cost.num_bytes if self.cost.num_bytes else None
        return {
            "seconds": self.seconds,
            "share": self.seconds / wall_s if wall_s else 0.0,
            "executions": self.executions,
            "flops": self.cost.flops,
            "transcendentals": self.cost.transcendentals,
            "integer_ops": self.cost.integer_ops,
            "bytes": self.cost.num_bytes,
            "intensity": intensity,
            "flops_per_s": operations / self.seconds if self.seconds else None,
            "bytes_per_s": self.cost.num_bytes / self.seconds if self.seconds else None,
            "bound": roofline.bound(intensity, dict(ceilings)) if intensity is not None and ceilings else None,
        }


def analyse(folder: Path, *, fastest: bool = False) -> dict[str, Any]:
    """The profile of a folder that `capture` wrote, or of a trace with the compiled program beside it.

    Args:
        folder: as `capture` lays it out, or one with a trace and its program.
        fastest: report the fastest traced step instead of the mean: on a busy machine the one least disturbed.

    Raises:
        InputError: no trace or no program, one that is truncated, or a trace of another program.
    """
    trace_path = xplane.find_trace(folder)
    base = folder if folder.is_dir() else folder.parent
    module = _program(base, "step", trace_path)
    facts, warnings = _facts(base)
    trace = xplane.read(trace_path, module.name)
    warnings += trace.warnings
    _check_same_program(trace, module, trace_path)
    attributions = scopes.attribute(module, facts.get("parts", ()))
    steps = occupancy.step_times(trace)
    if not steps:
        raise InputError(f"trace {trace_path}: holds no {xplane.STEP!r} step; annotate steps as jhgnn.profile does")
    steps = [min(steps, key=lambda step: step.wall_s)] if fastest else steps
    mean = _mean_step(steps)
    ceilings = facts.get("ceilings")
    executions = {op: count / len(trace.steps) for op, count in trace.executions.items()}
    tables = _tables(module, attributions, mean.ops, executions, mean.wall_s, ceilings)
    if facts.get("passed_over"):
        warnings.append(f"{facts['passed_over']} batches did not fit the traced program and were passed over")
    if "traced_s" not in facts:
        warnings.append("no capture.json beside the trace: sums are checked against the trace's own step times")
    profile = {
        "schema": SCHEMA,
        "run": {key: facts.get(key) for key in _RUN_KEYS},
        "step": _step_figures(steps, mean, facts, fastest),
        **tables,
        "host": {"parts": dict(mean.host), "hidden": dict(mean.hidden)},
        "idle": dict(mean.idle),
        "preparation": _preparation(base, facts),
        "attribution": _attribution(attributions, mean.ops),
        "memory": _memory(base, module, attributions, facts, warnings),
        "roofline": {"ceilings": ceilings},
        "cost_check": _cost_check(module, facts),
        "barriers": None,
        "gpu": _gpu(trace, module, attributions),
        "ncu": None,
        "warnings": warnings,
    }
    if (base / "ncu.csv").exists():
        ncu.merge(profile, ncu.read_csv(base / "ncu.csv"), attributions)
    if (base / "barriers" / "capture.json").exists():
        profile["barriers"] = _barriers(profile, analyse(base / "barriers"))
    return profile


_RUN_KEYS = (
    *("jax", "platform", "device", "model", "data", "metapaths", "semantic_graphs", "num_nodes"),
    *("rows", "implementations", "remat", "sampling", "devices"),
)


def _program(base: Path, name: str, trace_path: Path) -> hlo.Module:
    """The compiled program, beside the trace or in a folder above it."""
    for folder in (base, *trace_path.parents[:4]):
        text = _text(folder / f"{name}.hlo.txt")
        if text is not None:
            return hlo.parse(text, str(folder / f"{name}.hlo.txt"))
    raise InputError(
        f"trace {trace_path}: no {name}.hlo.txt beside it; save `compiled.as_text()` there, as jhgnn.profile does"
    )


def _text(path: Path) -> str | None:
    """A text file, or its gzipped form; None where there is neither."""
    try:
        if path.exists():
            return path.read_text(encoding="utf-8")
        packed = path.with_name(path.name + ".gz")
        return gzip.decompress(packed.read_bytes()).decode("utf-8") if packed.exists() else None
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _facts(base: Path) -> tuple[dict[str, Any], list[str]]:
    text = _text(base / "capture.json")
    if text is None:
        return {}, []
    try:
        facts = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{base / 'capture.json'}: not JSON: {error}") from None
    if not isinstance(facts, dict):
        raise InputError(f"{base / 'capture.json'}: holds {type(facts).__name__}, not an object")
    return facts, []


def _check_same_program(trace: xplane.Trace, module: hlo.Module, path: Path) -> None:
    if not trace.modules:
        raise InputError(f"trace {path}: holds no op of any program; trace compiled steps with host_tracer_level 2")
    if module.name not in trace.modules:
        raise InputError(
            f"trace {path}: is of {', '.join(map(repr, trace.modules))}, and the program beside it is {module.name!r}"
        )
    unknown = [op for op in trace.executions if module.instruction(op) is None]
    if any(op.startswith("command_buffer") for op in unknown):
        raise InputError(
            f"trace {path}: its kernels were started as graphs of CUDA's, whose ops CUPTI does not tell; trace again"
            " with XLA_FLAGS=--xla_gpu_enable_command_buffer= (jhgnn.profile compiles the step so by itself)"
        )
    if unknown:
        raise InputError(
            f"trace {path}: {len(unknown)} of its {len(trace.executions)} ops ({unknown[0]!r}, ...) are not in the"
            " program beside it: it was compiled anew; trace again"
        )


def _mean_step(steps: list[occupancy.StepTimes]) -> occupancy.StepTimes:
    """The mean of every part, so that the means add up as the steps do."""

    def mean(name: str) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for step in steps:
            for key, value in getattr(step, name).items():
                total[key] += value
        return {key: value / len(steps) for key, value in total.items()}

    wall_s = sum(step.wall_s for step in steps) / len(steps)
    return occupancy.StepTimes(wall_s, mean("ops"), mean("host"), mean("hidden"), mean("idle"))


def _step_figures(
    steps: list[occupancy.StepTimes], mean: occupancy.StepTimes, facts: Mapping[str, Any], fastest: bool
) -> dict[str, Any]:
    parts_s = sum(sum(each.values()) for each in (mean.ops, mean.host, mean.idle))
    measured = facts.get("traced_s") or [step.wall_s for step in steps]
    measured_s = min(measured) if fastest else sum(measured) / len(measured)
    untraced = sorted(facts.get("untraced_s") or [])
    middle = 0 if fastest else len(untraced) // 2
    untraced_s = untraced[middle] if untraced else None
    traced_s = measured_s if fastest else sorted(measured)[len(measured) // 2]
    return {
        "steps": len(steps),
        "wall_s": mean.wall_s,
        "each_s": [step.wall_s for step in steps],
        "parts_s": parts_s,
        "measured_s": measured_s,
        "parts_over_measured": parts_s / measured_s,
        "untraced_s": untraced_s,
        "as_trained_s": statistics.median(facts["as_trained_s"]) if facts.get("as_trained_s") else None,
        "tracing_overhead": traced_s / untraced_s - 1 if untraced_s else None,
        "loss": facts.get("loss"),
        "inference_s": facts.get("inference_s"),
    }


def _tables(
    module: hlo.Module,
    attributions: Mapping[str, Attribution],
    op_s: Mapping[str, float],
    executions: Mapping[str, float],
    wall_s: float,
    ceilings: Mapping[str, float] | None,
) -> dict[str, Any]:
    by_stage: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    by_part: dict[Scope, _Sum] = defaultdict(_Sum)
    by_type: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    by_kernel: dict[tuple[str, str, str, str], _Sum] = defaultdict(_Sum)
    ops = []
    for op, seconds in sorted(op_s.items(), key=lambda item: -item[1]):
        instruction = module.instruction(op)
        attribution = attributions.get(op, Attribution({}, "none"))
        if instruction is None:  # a kernel that no op launched
            each, kind, kernel = Cost(), "DR", op
        else:
            each = cost(module, instruction)
            kind, kernel = kernel_type(module, instruction), kernel_name(module, instruction)
        count = executions.get(op, 0.0)
        shares = attribution.shares or {Scope("other", "forward"): 1.0}
        for scope, share in shares.items():
            direction = scope.direction if attribution.shares else "none"
            by_stage[scope.stage, direction].add(seconds, count, each, share)
            if scope.layer >= 0 or scope.part:
                by_part[scope].add(seconds, count, each, share)
            by_type[scope.stage, direction, kind].add(seconds, count, each, share)
            by_kernel[scope.stage, direction, kernel, kind].add(seconds, count, each, share)
        total = _Sum()
        total.add(seconds, count, each, 1.0)
        main = attribution.main
        ops.append(
            {
                "op": op,
                "kernel": kernel,
                "type": kind,
                "stage": main.stage if main else "other",
                "direction": main.direction if main else "none",
                "layer": main.layer if main else -1,
                "part": main.part if main else "",
                "source": attribution.source,
                "crosses": attribution.crosses,
            }
            | total.row(wall_s, ceilings)
        )

    def rows(sums: Mapping[Any, _Sum], names: tuple[str, ...]) -> list[dict[str, Any]]:
        made = []
        for key, each in sums.items():
            values = dataclasses.astuple(key) if isinstance(key, Scope) else key
            made.append(dict(zip(names, values, strict=True)) | each.row(wall_s, ceilings))
        return sorted(made, key=lambda row: -row["seconds"])

    return {
        "stages": rows(by_stage, ("stage", "direction")),
        "parts": rows(by_part, ("stage", "direction", "layer", "part")),
        "kernel_types": rows(by_type, ("stage", "direction", "type")),
        "kernels": rows(by_kernel, ("stage", "direction", "kernel", "type")),
        "ops": ops[:MAX_OPS],
        "num_ops": len(ops),
    }


def _attribution(attributions: Mapping[str, Attribution], op_s: Mapping[str, float]) -> dict[str, Any]:
    """Shares of the ops' time: attributed (named or inferred), and in ops that cross a border."""
    total = sum(op_s.values()) or 1.0
    by_source: dict[str, float] = defaultdict(float)
    crossing = moved = 0.0
    for op, seconds in op_s.items():
        attribution = attributions.get(op, Attribution({}, "none"))
        by_source[attribution.source] += seconds
        if attribution.crosses:
            crossing += seconds
            by_stage: dict[tuple[str, str], float] = defaultdict(float)
            for scope, share in attribution.shares.items():
                by_stage[scope.stage, scope.direction] += share
            moved += seconds * (1 - max(by_stage.values()))
    return {
        "attributed": (by_source["named"] + by_source["inferred"]) / total,
        "named": by_source["named"] / total,
        "inferred": by_source["inferred"] / total,
        "unattributed": by_source["none"] / total,
        "crossing": crossing / total,
        "split_off": moved / total,
    }


def _gpu(trace: xplane.Trace, module: hlo.Module, attributions: Mapping[str, Attribution]) -> dict[str, Any] | None:
    """Kernels and streams inside the steps, kernels with the stage of their op; null where no GPU took part."""
    if not trace.kernels:
        return None

    def inside(each: gpu.Kernel | gpu.Copy) -> bool:
        return any(step.start_ns <= each.start_ns < step.end_ns for step in trace.steps)

    kernels, copies = [each for each in trace.kernels if inside(each)], [each for each in trace.copies if inside(each)]
    rows = gpu.kernel_rows(kernels, len(trace.steps))
    for row in rows:
        instruction = module.instruction(row["op"])
        main = attributions[row["op"]].main if instruction is not None else None
        row["stage"], row["direction"] = (main.stage, main.direction) if main else ("other", "none")
        row["type"] = kernel_type(module, instruction) if instruction is not None else "DR"
    return {
        "devices": {name: dict(properties) for name, properties in trace.devices.items()},
        "streams": gpu.stream_rows(kernels, copies, len(trace.steps)),
        "kernels": rows,
    }


def _preparation(base: Path, facts: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of READ, SGB, LOAD and COMPILE from their annotations."""
    folder = base / "prepare"
    if folder.is_dir() and any(folder.rglob("*.xplane.pb")):
        spans = xplane.read(xplane.find_trace(folder)).host
        return {span.name: (span.end_ns - span.start_ns) / 1e9 for span in spans if span.name in xplane.PREPARATION}
    known = {"SGB": facts.get("sgb_s"), "COMPILE": facts.get("compile_s")}
    return {name: seconds for name, seconds in known.items() if seconds is not None}


def _memory(
    base: Path,
    module: hlo.Module,
    attributions: Mapping[str, Attribution],
    facts: Mapping[str, Any],
    warnings: list[str],
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "training": _program_memory(base, "step", module, attributions, facts.get("step_memory") or {}),
        "inference": None,
        "residuals": memory.residuals(module, attributions),
        "allocator": facts.get("allocator"),
    }
    text = _text(base / "inference.hlo.txt")
    if text is None:
        warnings.append("no inference.hlo.txt beside the trace: training is not compared with inference")
        return result
    inference = hlo.parse(text, str(base / "inference.hlo.txt"))
    attributed = scopes.attribute(inference, facts.get("parts", ()))
    stats = facts.get("inference_memory") or {}
    result["inference"] = _program_memory(base, "inference", inference, attributed, stats)
    return result


def _program_memory(
    base: Path,
    name: str,
    module: hlo.Module,
    attributions: Mapping[str, Attribution],
    stats: Mapping[str, int],
) -> dict[str, Any]:
    stored = _text(base / f"{name}.buffers.json")
    rows = json.loads(stored) if stored is not None else memory.rows_from_schedule(module)
    source = "buffer assignment" if stored is not None else "schedule"
    line = memory.timeline(module, attributions, rows, stats.get("temp_bytes", 0), source)
    argument = stats.get("argument_bytes", 0)
    results = stats.get("output_bytes", 0) - stats.get("alias_bytes", 0)
    stages = []
    for op in line.ops:
        main = attributions[op].main
        stages.append(f"{main.stage}.{main.direction}" if main else "other")
    kept = _thinned(len(line.ops), line.ops.index(line.peak_op) if line.peak_op else 0)
    return {
        "argument_bytes": argument,
        "result_bytes": results,
        "temp_bytes": line.temp_bytes,
        "total_bytes": argument + results + line.temp_bytes,
        "peak_live_bytes": line.peak_bytes,
        "peak_op": line.peak_op,
        "peak_by_stage": dict(line.peak_by_stage),
        "source": line.source,
        "timeline": {
            "stage": [stages[at] for at in kept],
            "live_bytes": {key: [values[at] for at in kept] for key, values in line.by_stage.items()},
        },
    }


def _thinned(length: int, peak: int) -> list[int]:
    if length <= MAX_POINTS:
        return list(range(length))
    every = math.ceil(length / MAX_POINTS)
    return sorted({*range(0, length, every), peak, length - 1})


def _cost_check(module: hlo.Module, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Our sums over ops beside XLA's totals; both count a loop's body once and leave native kernels out of FLOPs."""
    theirs = facts.get("xla_cost")
    if not theirs:
        return None
    ours = Cost()
    for computation in module.executed.values():
        for instruction in computation.instructions.values():
            if not instruction.custom_call_target:
                ours = ours + cost(module, instruction)
    return {
        "flops": ours.flops + ours.integer_ops,
        "xla_flops": theirs["flops"],
        "transcendentals": ours.transcendentals,
        "xla_transcendentals": theirs["transcendentals"],
    }


def _barriers(without: Mapping[str, Any], with_barriers: Mapping[str, Any]) -> dict[str, Any]:
    """What barriers at the stage borders cost and change."""

    def shares(profile: Mapping[str, Any]) -> dict[str, float]:
        total = sum(row["seconds"] for row in profile["stages"]) or 1.0
        return {f"{row['stage']}.{row['direction']}": row["seconds"] / total for row in profile["stages"]}

    plain, barred = without["step"]["untraced_s"], with_barriers["step"]["untraced_s"]
    return {
        "slowdown": barred / plain - 1 if plain and barred else None,
        "crossing": with_barriers["attribution"]["crossing"],
        "stage_shares": shares(with_barriers),
        "stage_shares_without": shares(without),
    }
