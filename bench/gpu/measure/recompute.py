"""What recomputation costs and saves on the device: an update of one recipe by implementation and policy."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

from bench.comparison.cases import Case, problem_of, recipe
from bench.gpu.measure.timing import measuring, preparing, timed
from bench.gpu.measure.worker import Run
from bench.recompute_study.variants import execution_with, program_of
from jhgnn.config.recipe import override
from jhgnn.data import load
from jhgnn.errors import InputError
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Execution
from jhgnn.training.problem import Problem
from jhgnn.training.programs import Compiled, compile_together
from jhgnn.training.whole_graph import WholeGraph
from jhgnn.training.whole_graph_programs import WholeGraphPrograms

IMPLEMENTATIONS = ("native", "segment")
"""A fused kernel, and what materialises a message for each edge, as the stacks that the paper studied do."""
POLICIES = ("none", "na", "stage", "full")


def rows(run: Run, case: str) -> Iterator[dict[str, Any]]:
    """A row for each implementation and policy; policies of one program share its figures, and are timed once."""
    model, _, dataset = case.partition("-")
    graph = load("synthetic", dataset, scale=run.sizes.scale, progress=False)
    config = override(recipe(Case(model, dataset)), {"sgb": {"cache_dir": ""}}, where="bench.gpu")
    shared = {"kind": "recompute", "case": case}
    with preparing(run.folder):
        variants, programs = _compiled(problem_of(graph, config))
    known: dict[str, dict[str, Any]] = {}
    with measuring(run.folder):
        for implementation, policy, execution, name in variants:
            if isinstance(execution, str):
                yield shared | {"implementation": implementation, "skipped": execution}
                continue
            if name not in known:
                known[name] = _timed(execution, programs[name], run)
            yield shared | {"implementation": implementation, "variant": policy, "program": name} | known[name]


_Variant = tuple[str, str, Execution | str, str]


def _compiled(problem: Problem) -> tuple[list[_Variant], dict[str, Compiled]]:
    """Every variant with the name of its program, and the programs, compiled side by side."""
    variants: list[_Variant] = []
    lowered: dict[str, Callable[[], jax.stages.Lowered]] = {}
    for implementation in IMPLEMENTATIONS:
        try:
            first = execution_with(problem, implementation, "float32", 1)
        except InputError as error:
            variants.append((implementation, "", str(error), ""))
            continue
        for policy in POLICIES:
            execution = first.with_training(remat=policy)
            traced = execution.lower_update()
            name = program_of(traced.as_text())
            lowered.setdefault(name, functools.partial(_same, traced))
            variants.append((implementation, policy, execution, name))
    return variants, dict(zip(lowered, compile_together(list(lowered.values())), strict=True))


def _same(traced: jax.stages.Lowered) -> jax.stages.Lowered:
    return traced


def _timed(execution: Execution, program: Compiled, run: Run) -> dict[str, Any]:
    assert isinstance(execution, WholeGraph)
    programs = WholeGraphPrograms(execution, [program], [])
    state = programs.place(execution.initial_state(0))
    batches = programs.feed(0).iterate(Cursor())

    def update() -> Any:
        nonlocal state
        state, report = programs.update(state, next(batches))
        return state, report

    found = timed(update, run.sizes)
    batches.close()
    return found | {"temp_bytes": program.peak_temp_bytes, "resident_bytes": execution.resident_bytes()}
