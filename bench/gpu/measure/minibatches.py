"""Updates over mini-batches of a synthetic graph like ogbn-mag, sampled on the host and on the device."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from bench.comparison.cases import Case, problem_of, recipe
from bench.gpu.measure.timing import measuring, preparing, summary
from bench.gpu.measure.worker import Run
from bench.stepper import Stepper
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.native import cuda
from jhgnn.training.mesh import local
from jhgnn.training.prepare import execution_of
from jhgnn.training.programs import compile_together
from jhgnn.training.sampled import Sampled
from jhgnn.training.sampled_programs import SampledPrograms

WAYS: dict[str, tuple[str, str]] = {
    "host": ("host", "auto"),
    "device": ("device", "auto"),
    "device, native": ("device", "native"),
}
"""Name -> where neighbours are sampled, and what the kernels are told."""
KEYS = {"han": "attention", "rgat": "attention", "rgcn": "mean"}
"""What each model aggregates by, as recipes name it."""
LEAST_STEPS, STEPS_S = 5, 4.0


def rows(run: Run, model: str) -> Iterator[dict[str, Any]]:
    """A row a way: milliseconds of a step, of which waiting for its batch, and targets a second."""
    graph = load("synthetic", "mag", scale=run.sizes.mag_scale, progress=False).with_reverse_relations()
    executions: dict[str, Sampled] = {}
    with preparing(run.folder):
        for name in run.sizes.minibatch_ways:
            side, kernels = WAYS[name]
            if kernels == "native" and not cuda.available():
                row = {"kind": "mini-batch", "model": model, "sampling": side, "kernels": kernels}
                yield row | {"skipped": cuda.HOW_TO_GET_IT}
                continue
            executions[name] = _execution(graph, model, side, kernels, run)
        compiled = _compiled(executions)
    for name, programs in compiled.items():
        side, kernels = WAYS[name]
        row = {"kind": "mini-batch", "model": model, "sampling": side, "kernels": kernels, "name": name}
        with measuring(run.folder):
            yield row | _timed(programs, run)


def _compiled(executions: Mapping[str, Sampled]) -> dict[str, SampledPrograms]:
    """The updates' programs alone, all compiled side by side."""
    lowered = [
        functools.partial(execution.lower_update, bucket)
        for execution in executions.values()
        for bucket in range(execution.num_buckets)
    ]
    made = iter(compile_together(lowered))
    return {
        name: SampledPrograms(execution, [next(made) for _ in range(execution.num_buckets)], [])
        for name, execution in executions.items()
    }


def _execution(graph: HeteroGraph, model: str, side: str, kernels: str, run: Run) -> Sampled:
    tables: dict[str, Any] = {"sampling": {"side": side}}
    if run.sizes.batch_size:
        tables["sampling"] |= {"batch_size": run.sizes.batch_size}
    if run.sizes.fan_out:
        tables["sampling"] |= {"fan_out": run.sizes.fan_out}
    if kernels != "auto":
        tables["kernels"] = {KEYS[model]: kernels}
    execution = execution_of(problem_of(graph, override(recipe(Case(model, "mag")), tables, where="bench.gpu")))
    assert isinstance(execution, Sampled)
    return execution


def _timed(programs: SampledPrograms, run: Run) -> dict[str, Any]:
    stepper = Stepper.begin(programs)
    try:
        for _ in range(run.sizes.warm_up):
            second = stepper.step().seconds
        count = min(run.sizes.steps, max(LEAST_STEPS, int(STEPS_S / second)))
        steps = [stepper.step() for _ in range(count)]
    finally:
        stepper.close()
    targets = sum(float(local(step.report.num_examples)) for step in steps)
    stats = jax.devices()[0].memory_stats() or {}
    return summary([step.seconds for step in steps]) | {
        "wait_ms": summary([step.wait_s for step in steps])["ms"],
        "update_ms": summary([step.update_s for step in steps])["ms"],
        "targets_per_s": targets / sum(step.seconds for step in steps),
        "implementations": sorted({choice.implementation for choice in programs.execution.choices}),
        "compile_s": programs.compile_s,
        "temp_bytes": programs.step.peak_temp_bytes,
        "peak_bytes": int(stats.get("peak_bytes_in_use", 0)),
    }
