"""All variants of one recipe in one process: compiled figures of each, then their steps in turns.

`python -m bench.recompute_study.programs RECIPE OUTPUT ROUNDS IMPLEMENTATION...`; rewrites OUTPUT as it goes on.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.recompute_study.variants import execution_with, program_of
from bench.stepper import Stepper
from jhgnn.config.recipe import load_recipe
from jhgnn.errors import InputError
from jhgnn.planning.budget import candidate_of, policies
from jhgnn.profiling.program_memory import stage_memory
from jhgnn.runtime.files import write_text
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.runtime.memory_limit import available_memory_bytes, readable_bytes
from jhgnn.training.execution import Programs
from jhgnn.training.problem import read_problem

MEMORY_SHARE = 0.6
"""Of free memory that a step may take; larger ones are compiled and not run."""

ROUNDS_S = 240.0
"""After which no further round begins; two are always run."""


def main() -> None:
    recipe, output, rounds, *implementations = sys.argv[1:]
    configure_jax()
    problem = read_problem(load_recipe(recipe), progress=False)
    cells: list[dict[str, Any]] = []
    steppers: dict[str, Stepper] = {}
    for implementation in implementations:
        try:
            execution = execution_with(problem, implementation)
        except InputError as error:
            cells.append({"implementation": implementation, "refused": str(error)})
            continue
        known: dict[str, dict[str, Any]] = {}
        for remat in policies():
            variant = execution.with_training(remat=remat)
            program = f"{implementation}-{program_of(variant)}"
            if program not in known:
                programs = variant.compile()
                known[program] = figures(programs) | {"program": program}
                free = available_memory_bytes()
                if known[program]["temp_bytes"] > MEMORY_SHARE * free:
                    shown = f"{MEMORY_SHARE:.0%} of the {readable_bytes(free)} that were free"
                    known[program]["not_run"] = f"its temporaries are over {shown}"
                else:
                    steppers[program] = Stepper.begin(programs, prefetch_threads=0)
                print(f"{implementation} {remat}: {programs.step.peak_temp_bytes / 2**20:,.1f} MiB", file=sys.stderr)
            cells.append({"implementation": implementation, "remat": remat, "steps_s": []} | known[program])
    _write(output, cells)
    times: dict[str, list[float]] = {program: [] for program in steppers}
    for stepper in steppers.values():
        stepper.step()
    began = time.monotonic()
    for number in range(int(rounds)):
        if number >= 2 and time.monotonic() - began > ROUNDS_S:
            break
        for program, stepper in steppers.items():
            times[program].append(stepper.step().update_s)
        for cell in cells:
            cell["steps_s"] = times.get(cell.get("program", ""), [])
        _write(output, cells)


def figures(programs: Programs) -> dict[str, Any]:
    """What compiling a variant tells."""
    candidate, memory = candidate_of(programs), stage_memory(programs.step.call)
    return {
        "needed_bytes": candidate.needed_bytes,
        "resident_bytes": candidate.resident_bytes,
        "temp_bytes": candidate.step.temp_bytes,
        "evaluation_temp_bytes": candidate.evaluation.temp_bytes if candidate.evaluation else None,
        "flops": candidate.step.work.total_flops,
        "work": dataclasses.asdict(candidate.step.work),
        "predicted_s": candidate.predicted_s,
        "compile_s": programs.compile_s,
        "peak_live_bytes": memory.peak_bytes,
        "peak_by_stage": memory.at_peak,
        "kept": memory.kept,
    }


def _write(output: str, cells: list[dict[str, Any]]) -> None:
    write_text(Path(output), json.dumps(cells))


if __name__ == "__main__":
    main()
