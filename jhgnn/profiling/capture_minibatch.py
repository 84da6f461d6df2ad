"""Runs a recipe's mini-batch steps under the profiler; the counterpart of `capture` for sampled training.

A step begins when training asks for its batch and ends when the update is done, so waiting for the loader is part of
it. The loader works ahead on threads of its own: what it does while ops run is reported as hidden, what training waits
for as host time.
"""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.profiling.capture import Capture, device_facts, memory_stats, save_program, tracing, xla_cost
from jhgnn.profiling.roofline import measure_ceilings
from jhgnn.profiling.xplane import STEP
from jhgnn.recipe import to_toml
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.minibatch_problem import MinibatchProblem, plan_minibatches
from jhgnn.training.minibatch_programs import Fed, Feed, MinibatchPrograms, compile_minibatches, train_batches
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import local
from jhgnn.training.problem import read
from jhgnn.training.reporting import write_json, write_text
from jhgnn.training.state import TrainState, init_params, init_state

UNTRACED_STEPS = 5


def capture_minibatches(config: Config, folder: Path, *, warm_up: int, steps: int, progress: bool = True) -> Capture:
    """Profiles mini-batch training of a recipe into a folder, laid out as `capture` does.

    `inference.*` is the program that evaluates a batch. Batches that overflow the capacities of the traced program are
    passed over, and counted.

    Args:
        config: the recipe, on one device.
        folder: exists.
        warm_up: steps that are run and not counted.
        steps: steps that are traced; in the trace they follow as many steps as batches may lie prepared.
        progress: show the readers' progress.

    Raises:
        InputError: as `read` and `plan_minibatches`; several devices.
    """
    config = dataclasses.replace(config, sgb=dataclasses.replace(config.sgb, cache_dir=""))
    if config.distributed.devices == 0:
        config = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=1))
    if config.distributed.devices > 1 or jax.process_count() > 1:
        raise InputError(
            f"distributed.devices = {config.distributed.devices}: jhgnn.profile traces mini-batch steps of one device"
        )
    write_text(folder / "recipe.toml", to_toml(config))
    with tracing(folder / "prepare", host_level=1):
        with jax.profiler.TraceAnnotation("READ"):
            start = time.perf_counter()
            graph = read(config, progress=progress)
            read_s = time.perf_counter() - start
        with jax.profiler.TraceAnnotation("SGB"):
            problem = plan_minibatches(graph, config, read_s=read_s)
        with jax.profiler.TraceAnnotation("COMPILE"):
            start = time.perf_counter()
            programs = compile_minibatches(problem, config)
            compile_s = time.perf_counter() - start
    save_program(folder, "step", programs.steps[0])
    save_program(folder, "inference", programs.evaluations[0])
    facts = _facts(config, problem, programs) | {"sgb_s": problem.sgb_s, "compile_s": compile_s}
    facts |= _run(folder, problem, programs, config, warm_up, steps)
    facts |= {
        "step_memory": memory_stats(programs.steps[0]),
        "inference_memory": memory_stats(programs.evaluations[0]),
        "xla_cost": xla_cost(programs.steps[0]),
        "ceilings": measure_ceilings(),
        "warm_up_steps": warm_up,
    }
    write_json(folder / "capture.json", facts)
    return Capture(folder, facts)


def _run(
    folder: Path, problem: MinibatchProblem, programs: MinibatchPrograms, config: Config, warm_up: int, steps: int
) -> dict[str, Any]:
    """Steps to warm up, steps without a trace, and traced steps; then the evaluation program on the last batch."""
    batches = train_batches(problem, config)
    state = init_state(
        init_params(config.model, problem.spec, config.run.seed),
        make_optimizer(config.training, batches.steps_per_epoch),
        config.run.seed,
    )
    feed = Feed(problem, programs, config, batches)
    # The loader fills its queue while a trace starts: that many steps pass before its pace shows again.
    prepared = config.sampling.prefetch_depth + 1 if feed_is_ahead(problem, config) else 0
    with contextlib.closing(feed.iterate(Cursor())) as fed:
        stepper = _Stepper(programs, programs.fleet.replicate(state), fed)
        for _ in range(warm_up):
            stepper.step()
        untraced = [stepper.step() for _ in range(UNTRACED_STEPS)]
        traced = []
        with tracing(folder, host_level=2):
            for _ in range(prepared):
                stepper.step()
            for number in range(steps):
                start = time.perf_counter()
                with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                    stepper.step()
                traced.append(time.perf_counter() - start)
    evaluated = []
    for _ in range(UNTRACED_STEPS):
        start = time.perf_counter()
        jax.block_until_ready(programs.evaluations[0](stepper.state.params, programs.resident, stepper.share))
        evaluated.append(time.perf_counter() - start)
    return {
        "untraced_s": untraced,
        "traced_s": traced,
        "loss": stepper.loss,
        "inference_s": statistics.median(evaluated),
        "passed_over": stepper.passed_over,
    }


def feed_is_ahead(problem: MinibatchProblem, config: Config) -> bool:
    """Whether host threads prepare batches while the device trains."""
    return problem.side[0] == "host" and config.sampling.prefetch_threads > 0


class _Stepper:
    """Runs steps one after the other, each with the next batch that fits the traced program."""

    def __init__(self, programs: MinibatchPrograms, state: TrainState, fed: Generator[Fed, None, None]) -> None:
        self.programs, self.state, self.fed = programs, state, fed
        self.passed_over = 0
        self.loss = 0.0
        self.share: Any = None

    def step(self) -> float:
        """Seconds of one step, waiting for its batch included."""
        start = time.perf_counter()
        fed = next(self.fed)
        while fed.bucket > 0:
            self.passed_over += 1
            fed = next(self.fed)
        self.state, report = self.programs.steps[0](self.state, self.programs.resident, fed.share)
        jax.block_until_ready((self.state, report))
        seconds = time.perf_counter() - start
        self.share, self.loss = fed.share, float(local(report.loss))
        self.passed_over += int(bool(local(report.overflowed)))
        return seconds


def _facts(config: Config, problem: MinibatchProblem, programs: MinibatchPrograms) -> dict[str, Any]:
    """What the analysis and the report say about the run."""
    graph, sampling = problem.graph, config.sampling
    drawn = {draw.name for draw in problem.plan.draws}
    edges = problem.metapath_edges() or {str(relation): each.num_edges for relation, each in graph.edges.items()}
    return device_facts(config, graph.name) | {
        "metapaths": [metapath.name for metapath in problem.metapaths],
        "semantic_graphs": edges,
        "num_nodes": dict(graph.num_nodes),
        "implementations": {choice.subject: choice.implementation for choice in problem.choices},
        "parts": sorted({*drawn, *edges, *graph.num_nodes, "classifier", "loss"}),
        "sampling": {
            "batch_size": sampling.batch_size,
            "fan_out": sampling.fan_out,
            "walks": sampling.walks,
            "side": problem.side[0],
            "features_on_device": problem.features_on_device[0],
            "threads": sampling.threads,
            "prefetch_threads": sampling.prefetch_threads,
            "steps_per_epoch": train_batches(problem, config).steps_per_epoch,
            "slots": sum(count for _, count in programs.buckets.capacities[0][-1].items),
        },
    }
