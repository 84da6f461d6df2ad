"""Runs a recipe's training step under the profiler and saves what the analysis reads: traces, programs, facts.

A step begins when training asks for its batch and ends when the update is done, so waiting for a loader is part of it.
A loader works ahead on threads of its own: what it does while ops run is reported as hidden, what training waits for as
host time.
"""

import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import jax

from jhgnn.config import Config
from jhgnn.config.recipe import to_toml
from jhgnn.nn.stage import barriers
from jhgnn.profiling.program_memory import assigned_rows, module_proto
from jhgnn.profiling.roofline import measure_ceilings
from jhgnn.profiling.xplane import STEP, make_newest, traces
from jhgnn.runtime.files import write_json, write_text
from jhgnn.runtime.platform import GPUS, target_platform
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Batch, Execution, Programs
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import read_problem
from jhgnn.training.programs import Compiled, compile_lowered
from jhgnn.training.size_check import check_memory

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
    """Profiles training of a recipe into a folder.

    Writes `recipe.toml`, `capture.json`, `step.hlo.txt`, `step.hlo.pb`, `step.buffers.json`, the same for `inference`,
    the trace of the steps under `plugins/profile/` and that of the preparation under `prepare/`. With barriers,
    `barriers/` holds the same step with `optimization_barrier`s at the stage borders. On a GPU the traced step starts
    its kernels one by one, and `as_trained_s` has the seconds of the program that trains. Of mini-batches `inference`
    is the forward pass over a batch, and batches that overflow the capacities of the traced program are passed over,
    and counted. Of several devices a step is that of all of them together.

    Args:
        config: the recipe; semantic graphs are built anew, so that SGB is measured and not the cache.
        folder: exists.
        warm_up: steps that are run and not counted.
        steps: steps that are traced; where batches are prepared ahead, after as many as may lie prepared.
        with_barriers: also profile the step with barriers.
        progress: show the readers' progress.

    Raises:
        InputError: as `jhgnn.training.prepare.prepare`.
    """
    config = dataclasses.replace(config, sgb=dataclasses.replace(config.sgb, cache_dir=""))
    write_text(folder / "recipe.toml", to_toml(config))
    with tracing(folder / "prepare", host_level=1):
        with jax.profiler.TraceAnnotation("READ"):
            problem = read_problem(config, progress=progress)
        execution = execution_of(problem)
        check_memory(execution)
        with jax.profiler.TraceAnnotation("COMPILE"):
            programs = execution.compile()
    inference = compile_lowered(execution.lower_inference)
    trained = programs
    if target_platform() in GPUS:
        programs = trained.with_step(kernel_by_kernel(execution))
    save_program(folder, "step", programs.step)
    save_program(folder, "inference", inference)
    facts = _facts(execution) | {"sgb_s": execution.sgb_s, "compile_s": programs.compile_s}
    variants = {folder: programs}
    if with_barriers:
        with barriers():
            variants[folder / "barriers"] = programs.with_step(compile_lowered(execution.lower_update))
    as_trained = [trained] if programs is not trained else []
    with contextlib.ExitStack() as stack:
        steppers = [
            stack.enter_context(contextlib.closing(_Stepper(each))) for each in (*variants.values(), *as_trained)
        ]
        untraced = _untraced(steppers, warm_up)
        facts |= {"warm_up_steps": warm_up, "untraced_s": untraced[0]}
        facts |= {"as_trained_s": untraced[-1]} if as_trained else {}
        facts |= _traced(folder, steppers[0], steps)
        facts |= {"step_memory": memory_stats(programs.step), "inference_memory": memory_stats(inference)}
        facts |= {"inference_s": _inference_s(programs, inference, steppers[0], warm_up, steps)}
        facts |= {"xla_cost": xla_cost(programs.step), "ceilings": measure_ceilings()}
        write_json(folder / "capture.json", facts)
        if with_barriers:
            below = folder / "barriers"
            below.mkdir(exist_ok=True)
            save_program(below, "step", variants[below].step)
            measured = _traced(below, steppers[1], steps)
            memory = {"step_memory": memory_stats(variants[below].step), "untraced_s": untraced[1]}
            write_json(below / "capture.json", facts | measured | memory)
    return Capture(folder, facts)


def kernel_by_kernel(execution: Execution) -> Compiled:
    """The update for a GPU with kernels that start one by one: of those in a graph of CUDA's, which training starts as
    one, CUPTI does not tell the ops.
    """
    start = time.perf_counter()
    call = execution.lower_update().compile({"xla_gpu_enable_command_buffer": ""})
    return Compiled(call, time.perf_counter() - start)


def save_program(folder: Path, name: str, program: Compiled) -> None:
    """Saves a compiled program as text and proto, and its buffer assignment where XLA gives one."""
    executable: Any = program.call.runtime_executable()
    write_text(folder / f"{name}.hlo.txt", program.call.as_text() or executable.hlo_modules()[0].to_string())
    temporary = folder / f".{name}.hlo.pb.tmp"
    temporary.write_bytes(module_proto(program.call))
    temporary.replace(folder / f"{name}.hlo.pb")
    rows = assigned_rows(program.call)
    if rows is not None:
        write_text(folder / f"{name}.buffers.json", json.dumps(rows, separators=(",", ":")))


class _Stepper:
    """Runs steps one after the other, each with the next batch that fits the traced program."""

    def __init__(self, programs: Programs) -> None:
        execution = programs.execution
        self.programs, seed = programs, execution.config.run.seed
        self.state = programs.initial_state(seed)
        self.batches: Generator[Batch, None, None] = programs.feed(seed).iterate(Cursor())
        self.batch: Batch | None = None
        self.passed_over, self.loss = 0, 0.0

    def step(self) -> float:
        """Seconds of one step, waiting for its batch included."""
        start = time.perf_counter()
        self.batch = next(self.batches)
        while self.batch.bucket > 0:
            self.passed_over += 1
            self.batch = next(self.batches)
        self.state, report = self.programs.update(self.state, self.batch)
        jax.block_until_ready((self.state, report))
        seconds = time.perf_counter() - start
        self.loss = float(local(report.loss))
        return seconds

    def close(self) -> None:
        self.batches.close()


def _untraced(steppers: list[_Stepper], warm_up: int) -> list[list[float]]:
    """Seconds of every program's steps without a trace; the programs take turns, so that noise meets all of them."""
    times: list[list[float]] = [[] for _ in steppers]
    for number in range(warm_up + UNTRACED_STEPS):
        for index, stepper in enumerate(steppers):
            seconds = stepper.step()
            if number >= warm_up:
                times[index].append(seconds)
    return times


def _traced(folder: Path, stepper: _Stepper, steps: int) -> dict[str, Any]:
    """Traces steps, after one that warms the caches again."""
    # A loader fills its queue while a trace starts: that many steps pass before its pace shows again.
    prepared = stepper.programs.execution.batches_ahead
    stepper.step()
    seconds = []
    with tracing(folder, host_level=2):
        for _ in range(prepared):
            stepper.step()
        for number in range(steps):
            start = time.perf_counter()
            with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                stepper.step()
            seconds.append(time.perf_counter() - start)
    return {"traced_s": seconds, "loss": stepper.loss, "passed_over": stepper.passed_over}


@contextlib.contextmanager
def tracing(folder: Path, host_level: int) -> Iterator[None]:
    """A trace without Python frames; level 2 records the ops of XLA:CPU, level 1 annotations alone.

    It counts as the newest of its folder, also where the clock was set back since an earlier one.
    """
    earlier = traces(folder)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = host_level
    with jax.profiler.trace(str(folder), profiler_options=options):
        yield
    make_newest([path for path in traces(folder) if path not in earlier], earlier)


def _inference_s(programs: Programs, inference: Compiled, stepper: _Stepper, warm_up: int, steps: int) -> float:
    assert stepper.batch is not None
    arguments = programs.inference_arguments(stepper.state.params, stepper.batch)
    times = []
    for _ in range(warm_up + steps):
        start = time.perf_counter()
        jax.block_until_ready(inference(*arguments))
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm_up:])


def _facts(execution: Execution) -> dict[str, Any]:
    graph, edges = execution.graph, execution.semantic_edges()
    named = {choice.subject for choice in execution.choices}
    return device_facts(execution.config, graph.name) | {
        "metapaths": [metapath.name for metapath in execution.metapaths],
        "semantic_graphs": dict(edges),
        "num_nodes": dict(graph.num_nodes),
        "devices": execution.mesh.size,
        "implementations": {choice.subject: choice.implementation for choice in execution.choices},
        "parts": sorted({*named, *edges, *graph.num_nodes, "classifier", "loss"}),
        **execution.profile_facts(),
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
