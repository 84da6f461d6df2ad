"""Runs a recipe's training step under the profiler and saves what the analysis reads: traces, programs, facts."""

import contextlib
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.nn.stage import barriers
from jhgnn.profiling.memory import decode_assignment
from jhgnn.profiling.roofline import measure_ceilings
from jhgnn.profiling.xplane import STEP
from jhgnn.recipe import to_toml
from jhgnn.training import loop
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.problem import Problem, build_graphs, place, read
from jhgnn.training.reporting import write_json, write_text
from jhgnn.training.state import abstract_params, init_params, init_state
from jhgnn.training.step import Compiled, apply_model, compile_ahead

WARM_UP_STEPS = 3
TRACED_STEPS = 5
"""As in the characterization paper, section 3.2: five epochs after the first three."""
UNTRACED_STEPS = 5


@dataclasses.dataclass(frozen=True)
class Capture:
    """What `capture` saved: `facts` is `capture.json`."""

    folder: Path
    facts: dict[str, Any]


def capture(
    config: Config,
    folder: Path,
    *,
    warm_up: int = WARM_UP_STEPS,
    steps: int = TRACED_STEPS,
    with_barriers: bool = False,
    progress: bool = True,
) -> Capture:
    """Profiles training of a recipe into a folder; a mini-batch one by `capture_minibatches`.

    Writes `recipe.toml`, `capture.json`, `step.hlo.txt`, `step.hlo.pb`, `step.buffers.json`, the same for `inference`,
    the trace of the steps under `plugins/profile/` and that of the preparation under `prepare/`. With barriers,
    `barriers/` holds the same step with `optimization_barrier`s at the stage borders.

    Args:
        config: the recipe; semantic graphs are built anew, so that SGB is measured and not the cache.
        folder: exists.
        warm_up: steps that are run and not counted.
        steps: steps that are traced.
        with_barriers: also profile the step with barriers.
        progress: show the readers' progress.

    Raises:
        InputError: as `jhgnn.training.problem.prepare`; or barriers in mini-batch steps.
    """
    if config.sampling.batch_size:
        from jhgnn.profiling.capture_minibatch import capture_minibatches

        if with_barriers:
            raise InputError(
                f"--barriers with sampling.batch_size = {config.sampling.batch_size}: barriers are compiled into"
                " full-batch steps only; leave --barriers out"
            )
        return capture_minibatches(config, folder, warm_up=warm_up, steps=steps, progress=progress)
    config = dataclasses.replace(config, sgb=dataclasses.replace(config.sgb, cache_dir=""))
    write_text(folder / "recipe.toml", to_toml(config))
    with tracing(folder / "prepare", host_level=1):
        with jax.profiler.TraceAnnotation("READ"):
            graph = read(config, progress=progress)
        with jax.profiler.TraceAnnotation("SGB"):
            start = time.perf_counter()
            metapaths, host_graphs = build_graphs(graph, config)
            sgb_s = time.perf_counter() - start
        with jax.profiler.TraceAnnotation("LOAD"):
            problem = place(graph, metapaths, host_graphs, config, sgb_s=sgb_s)
            jax.block_until_ready((problem.inputs, problem.labels))
        with jax.profiler.TraceAnnotation("COMPILE"):
            programs = loop.compile_programs(problem, config)
    inference = _compile_inference(problem, config, programs)
    save_program(folder, "step", programs.step)
    save_program(folder, "inference", inference)
    facts = _facts(config, problem) | {"sgb_s": sgb_s, "compile_s": programs.compile_s}
    variants = {folder: programs.step}
    if with_barriers:
        with barriers():
            variants[folder / "barriers"] = loop.compile_programs(problem, config).step
    untraced = _untraced(problem, config, list(variants.values()), warm_up)
    facts |= {"warm_up_steps": warm_up, "untraced_s": untraced[0]}
    facts |= _traced(folder, problem, config, programs.step, steps)
    facts |= {"step_memory": memory_stats(programs.step), "inference_memory": memory_stats(inference)}
    facts |= {"inference_s": _inference_s(problem, config, inference, warm_up, steps)}
    facts |= {"xla_cost": xla_cost(programs.step), "ceilings": measure_ceilings()}
    write_json(folder / "capture.json", facts)
    if with_barriers:
        below = folder / "barriers"
        below.mkdir(exist_ok=True)
        save_program(below, "step", variants[below])
        measured = _traced(below, problem, config, variants[below], steps)
        memory = {"step_memory": memory_stats(variants[below]), "untraced_s": untraced[1]}
        write_json(below / "capture.json", facts | measured | memory)
    return Capture(folder, facts)


def save_program(folder: Path, name: str, program: Compiled) -> None:
    """Saves a compiled program as text and proto, and its buffer assignment where XLA gives one."""
    executable: Any = program.call.runtime_executable()
    module = executable.hlo_modules()[0]
    proto = module.as_serialized_hlo_module_proto()
    write_text(folder / f"{name}.hlo.txt", program.call.as_text() or module.to_string())
    temporary = folder / f".{name}.hlo.pb.tmp"
    temporary.write_bytes(proto)
    temporary.replace(folder / f"{name}.hlo.pb")
    stats = program.call.memory_analysis()
    assignment = getattr(stats, "serialized_buffer_assignment_proto", b"") if stats is not None else b""
    if assignment:
        rows = decode_assignment(assignment, proto)
        write_text(folder / f"{name}.buffers.json", json.dumps(rows, separators=(",", ":")))


def _untraced(problem: Problem, config: Config, programs: list[Compiled], warm_up: int) -> list[list[float]]:
    """Seconds of every program's steps without a trace; the programs take turns, so that noise meets all of them."""
    arguments = problem.step_arguments
    states = [_start(problem, config) for _ in programs]
    times: list[list[float]] = [[] for _ in programs]
    for number in range(warm_up + UNTRACED_STEPS):
        for index, program in enumerate(programs):
            start = time.perf_counter()
            states[index], report = program(states[index], *arguments)
            jax.block_until_ready((states[index], report))
            if number >= warm_up:
                times[index].append(time.perf_counter() - start)
    return times


def _traced(folder: Path, problem: Problem, config: Config, step: Compiled, steps: int) -> dict[str, Any]:
    """Traces steps, after one that warms the caches again."""
    arguments = problem.step_arguments
    state, report = step(_start(problem, config), *arguments)
    jax.block_until_ready((state, report))
    seconds = []
    with tracing(folder, host_level=2):
        for number in range(steps):
            start = time.perf_counter()
            with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                state, report = step(state, *arguments)
                jax.block_until_ready((state, report))
            seconds.append(time.perf_counter() - start)
    return {"traced_s": seconds, "loss": float(report.loss)}


def _start(problem: Problem, config: Config) -> Any:
    params = init_params(config.model, problem.spec, config.run.seed)
    return init_state(params, make_optimizer(config.training), config.run.seed)


def tracing(folder: Path, host_level: int) -> contextlib.AbstractContextManager[None]:
    """A trace without Python frames; level 2 records the ops of XLA:CPU, level 1 annotations alone."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = host_level
    return jax.profiler.trace(str(folder), profiler_options=options)


def _compile_inference(problem: Problem, config: Config, programs: loop.Programs) -> Compiled:
    """The forward pass alone, without dropout: what the paper calls pure inference."""

    def logits(params: Any, inputs: Any) -> jax.Array:
        return apply_model(programs.structure, params, inputs).logits

    return compile_ahead(logits, (abstract_params(config.model, problem.spec), problem.inputs))


def _inference_s(problem: Problem, config: Config, inference: Compiled, warm_up: int, steps: int) -> float:
    params = init_params(config.model, problem.spec, config.run.seed)
    times = []
    for _ in range(warm_up + steps):
        start = time.perf_counter()
        jax.block_until_ready(inference(params, problem.inputs))
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm_up:])


def _facts(config: Config, problem: Problem) -> dict[str, Any]:
    graph = problem.graph
    return device_facts(config, graph.name) | {
        "metapaths": [metapath.name for metapath in problem.metapaths],
        "semantic_graphs": {name: each.num_edges for name, each in problem.inputs.graphs.items()},
        "num_nodes": dict(graph.num_nodes),
        "rows": ": ".join(problem.rows),
        "implementations": {choice.subject: choice.implementation for choice in problem.choices},
        "parts": sorted({*problem.inputs.graphs, *graph.num_nodes, "classifier", "loss"}),
    }


def device_facts(config: Config, data: str) -> dict[str, Any]:
    """Versions, device and allocator, the model and its data."""
    device = jax.devices()[0]
    return {
        "schema": 1,
        "jax": jax.__version__,
        "platform": device.platform,
        "device": device.device_kind,
        "model": config.model.name,
        "data": data,
        "remat": config.training.remat,
        "allocator": device.memory_stats(),
    }


def memory_stats(program: Compiled) -> dict[str, int]:
    """Sizes of a program's arguments, results and temporaries; empty where XLA does not tell."""
    stats = program.call.memory_analysis()
    if stats is None:
        return {}
    kinds = ("argument", "output", "alias", "temp")
    return {f"{kind}_bytes": int(getattr(stats, f"{kind}_size_in_bytes")) for kind in kinds}


def xla_cost(program: Compiled) -> dict[str, float]:
    """XLA's own totals for the whole program, which loops count once."""
    totals = program.call.cost_analysis() or {}
    return {key: float(totals.get(key, 0.0)) for key in ("flops", "transcendentals", "bytes accessed")}
