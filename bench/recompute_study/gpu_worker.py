"""Compiles the updates of one recipe for a GPU that is not here: `python -m bench.recompute_study.gpu_worker REQUEST`.

Runs in the environment that can (`bench.gpu.environment`). The request is JSON: `recipe` (TOML text), `gpu`,
`implementation` and `dtype`. Each variant is one line of JSON on the standard output; variants of one program have its
figures.
"""

import dataclasses
import json
import sys
import time
import tomllib
from typing import Any

from bench.gpu.facts import facts_of
from bench.gpu.programs import programs
from bench.recompute_study.variants import program_of, variants
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.planning.work import work
from jhgnn.profiling.hlo import parse
from jhgnn.runtime.platform import compiling_for
from jhgnn.training.execution import Execution
from jhgnn.training.problem import read_problem

Row = dict[str, Any]


def main() -> None:
    request = json.loads(sys.argv[1])
    config = override(Config(), tomllib.loads(request["recipe"]), where="bench.recompute")
    with compiling_for("cuda"):
        problem = read_problem(config, progress=False)
    implementation, known = request["implementation"], dict[str, Row]()
    try:
        with compiling_for("cuda"):
            every = list(variants(problem, implementation))
    except InputError as error:
        told({"implementation": implementation, "refused": str(error)})
        return
    for variant, execution in every:
        if variant.dtype != request["dtype"]:
            continue
        try:
            told(variant._asdict() | figures(execution, request["gpu"], known))
        except InputError as error:
            told(variant._asdict() | {"refused": str(error)})


def figures(execution: Execution, gpu: str, known: dict[str, Row]) -> Row:
    """What compiling an update tells; equal ones are compiled once."""
    (update,) = (each for each in programs(execution, 1) if each.name == "update")
    lowered = update.lower(gpu)
    program = program_of(lowered.as_text())
    if program not in known:
        start = time.perf_counter()
        compiled = lowered.compile()
        compile_s = round(time.perf_counter() - start, 2)
        memory: Any = compiled.memory_analysis()
        module = parse(compiled.as_text() or "")
        facts = facts_of(module, {}, 1)
        temp_bytes = int(memory.temp_size_in_bytes)
        with compiling_for("cuda"):
            resident_bytes = execution.resident_bytes()
        new_bytes = temp_bytes + int(memory.output_size_in_bytes) - int(memory.alias_size_in_bytes)
        known[program] = {
            "program": program,
            "needed_bytes": resident_bytes + new_bytes,
            "resident_bytes": resident_bytes,
            "temp_bytes": temp_bytes,
            "work": dataclasses.asdict(work(module)),
            "launches": facts["launches"],
            "float_scatters": len(facts["float_scatters"]),
            "compile_s": compile_s,
        }
    return known[program]


def told(row: Row) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
