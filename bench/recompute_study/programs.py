"""All variants of one recipe with one implementation: compiled figures of each, then their steps in turns.

`python -m bench.recompute_study.programs RECIPE OUTPUT ROUNDS_S IMPLEMENTATION`; rewrites OUTPUT as it goes on.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.recompute_study.rounds import take_rounds
from bench.recompute_study.variants import program_of, variants
from bench.stepper import Stepper
from jhgnn.config.recipe import load_recipe
from jhgnn.errors import InputError
from jhgnn.planning.budget import candidate_of
from jhgnn.profiling.program_memory import stage_memory
from jhgnn.runtime.files import write_text
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.runtime.memory_limit import available_memory_bytes, readable_bytes
from jhgnn.training.execution import Programs
from jhgnn.training.problem import read_problem

MEMORY_SHARE = 0.6
"""Of free memory that a step may take; larger ones are compiled and not run."""

Row = dict[str, Any]


def main() -> None:
    recipe, output, rounds_s, implementation = sys.argv[1:]
    configure_jax()
    problem = read_problem(load_recipe(recipe), progress=False)
    rows: list[Row] = []
    known: dict[str, Row] = {}
    steppers: dict[str, Stepper] = {}
    try:
        for variant, execution in variants(problem, implementation):
            program = program_of(execution.lower_update().as_text())
            if program not in known:
                programs = execution.compile()
                known[program] = figures(programs) | {"program": program}
                free = available_memory_bytes()
                if known[program]["temp_bytes"] > MEMORY_SHARE * free:
                    shown = f"{MEMORY_SHARE:.0%} of the {readable_bytes(free)} that were free"
                    known[program]["not_run"] = f"its temporaries are over {shown}"
                else:
                    steppers[program] = Stepper.begin(programs, prefetch_threads=0)
                print(
                    f"{' '.join(map(str, variant))}: {known[program]['temp_bytes'] / 2**20:,.1f} MiB", file=sys.stderr
                )
            rows.append(variant._asdict() | known[program])
    except InputError as error:
        rows.append({"implementation": implementation, "refused": str(error)})

    def told(times: Mapping[str, list[float]]) -> None:
        timed = [row | {"steps_s": times.get(row.get("program", ""), [])} for row in rows]
        write_text(Path(output), json.dumps(timed))

    take_rounds({name: _seconds(stepper) for name, stepper in steppers.items()}, float(rounds_s), told)


def _seconds(stepper: Stepper) -> Callable[[], float]:
    return lambda: round(stepper.step().update_s, 7)


def figures(programs: Programs) -> Row:
    """What compiling a variant tells."""
    candidate, memory = candidate_of(programs), stage_memory(programs.step.call)
    return {
        "needed_bytes": candidate.needed_bytes,
        "resident_bytes": candidate.resident_bytes,
        "temp_bytes": candidate.step.temp_bytes,
        "flops": candidate.step.work.total_flops,
        "work": dataclasses.asdict(candidate.step.work),
        "predicted_s": candidate.predicted_s,
        "compile_s": programs.compile_s,
        "peak_by_stage": memory.at_peak,
        "kept": memory.kept,
    }


if __name__ == "__main__":
    main()
