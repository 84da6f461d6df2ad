"""All variants of one recipe in one process: compiled figures of each, then their steps in turns.

`python -m bench.recompute_study.programs RECIPE OUTPUT ROUNDS IMPLEMENTATION...`; rewrites OUTPUT as it goes on.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax

from bench.recompute_study.runner import Runner, problem_of, program_of
from bench.recompute_study.variants import variant
from jhgnn.errors import InputError
from jhgnn.graph.memory_limit import available_memory_bytes, readable_bytes
from jhgnn.planning.analysis import analyse_compiled
from jhgnn.planning.budget import Candidate, policies, resident_bytes
from jhgnn.planning.time_model import predicted_s
from jhgnn.profiling import hlo
from jhgnn.profiling.memory import decode_assignment, residuals, rows_from_schedule, timeline
from jhgnn.profiling.scopes import attribute
from jhgnn.recipe import load_recipe
from jhgnn.train import configure_jax
from jhgnn.training.problem import read
from jhgnn.training.reporting import write_text
from jhgnn.training.step import Compiled

MEMORY_SHARE = 0.6
"""Of free memory that a step may take; larger ones are compiled and not run."""

ROUNDS_S = 240.0
"""After which no further round begins; two are always run."""


def stage_memory(program: Compiled, temp_bytes: int) -> dict[str, Any]:
    """Live bytes by stage at the peak, and what each stage's forward pass keeps for the backward pass."""
    executable: Any = program.call.runtime_executable()
    proto = executable.hlo_modules()[0].as_serialized_hlo_module_proto()
    module = hlo.parse(program.call.as_text() or "")
    stats = program.call.memory_analysis()
    assignment = getattr(stats, "serialized_buffer_assignment_proto", b"") if stats is not None else b""
    rows = decode_assignment(assignment, proto) if assignment else rows_from_schedule(module)
    attributions = attribute(module)
    found = timeline(module, attributions, rows, temp_bytes, "buffer assignment" if assignment else "schedule")
    by_stage: dict[str, int] = {}
    for key, num_bytes in found.peak_by_stage.items():
        stage = key.partition(".")[0]
        by_stage[stage] = by_stage.get(stage, 0) + num_bytes
    return {"peak_live_bytes": found.peak_bytes, "peak_by_stage": by_stage, "kept": residuals(module, attributions)}


def main() -> None:
    recipe, output, rounds, *implementations = sys.argv[1:]
    configure_jax()
    base = load_recipe(recipe)
    graph = read(base, progress=False)
    cells: list[dict[str, Any]] = []
    runners: dict[str, Runner] = {}
    for implementation in implementations:
        try:
            problem = problem_of(graph, variant(base, implementation), implementation)
            staying = resident_bytes(problem, variant(base, implementation))
        except InputError as error:
            cells.append({"implementation": implementation, "refused": str(error)})
            continue
        known: dict[str, dict[str, Any]] = {}
        for remat in policies():
            config = variant(base, implementation, remat)
            program = f"{implementation}-{program_of(problem, config)}"
            if program not in known:
                runner = Runner(problem, config)
                known[program] = figures(runner, staying) | {"program": program}
                free = available_memory_bytes()
                if known[program]["temp_bytes"] > MEMORY_SHARE * free:
                    shown = f"{MEMORY_SHARE:.0%} of the {readable_bytes(free)} that were free"
                    known[program]["not_run"] = f"its temporaries are over {shown}"
                else:
                    runners[program] = runner
                    runner.start()
                print(f"{implementation} {remat}: {runner.step.peak_temp_bytes / 2**20:,.1f} MiB", file=sys.stderr)
            cells.append({"implementation": implementation, "remat": remat, "steps_s": []} | known[program])
    _write(output, cells)
    times: dict[str, list[float]] = {program: [] for program in runners}
    for runner in runners.values():
        runner.one_step()
    began = time.monotonic()
    for number in range(int(rounds)):
        if number >= 2 and time.monotonic() - began > ROUNDS_S:
            break
        for program, runner in runners.items():
            times[program].append(runner.one_step())
        for cell in cells:
            cell["steps_s"] = times.get(cell.get("program", ""), [])
        _write(output, cells)


def figures(runner: Runner, staying: int) -> dict[str, Any]:
    """What compiling a variant tells."""
    programs = runner.programs
    evaluated = programs.evaluations[0] if hasattr(programs, "evaluations") else programs.evaluate
    step, evaluation = analyse_compiled(programs.step.call), analyse_compiled(evaluated.call)
    seconds = predicted_s(step.work, step.temp_bytes, jax.default_backend())
    candidate = Candidate(runner.config.training.remat, 1, staying, step, evaluation, seconds)
    return {
        "needed_bytes": candidate.needed_bytes,
        "resident_bytes": staying,
        "temp_bytes": step.temp_bytes,
        "evaluation_temp_bytes": evaluation.temp_bytes,
        "flops": step.work.total_flops,
        "work": dataclasses.asdict(step.work),
        "predicted_s": seconds,
        "compile_s": runner.compile_s,
        **stage_memory(programs.step, step.temp_bytes),
    }


def _write(output: str, cells: list[dict[str, Any]]) -> None:
    write_text(Path(output), json.dumps(cells))


if __name__ == "__main__":
    main()
