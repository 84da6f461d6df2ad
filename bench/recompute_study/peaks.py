"""Which tensors a step holds at its peak, and which of them make it need more memory than under another policy.

`python -m bench.recompute_study.peaks RECIPE PAIRS`, where the pairs are JSON: two variants each, of which the second
keeps less and yet needs more. Compiles both for this CPU and runs neither. One line of JSON for each pair on the
standard output: the second variant, the policy of the first as `keeps_more`, and `tensors` with the bytes by which each
grew.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax

from bench.recompute_study.variants import Variant, execution_with
from jhgnn.config.recipe import load_recipe
from jhgnn.nn.recompute import compile_with_barriers
from jhgnn.profiling import hlo
from jhgnn.profiling.memory import timeline
from jhgnn.profiling.program_memory import assigned_rows
from jhgnn.profiling.scopes import Attribution, Scope, attribute
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.training.problem import Problem, read_problem

APART = "gaps between tensors"
"""What is allocated beyond the largest sum of live bytes, because places are kept whole and aligned."""

MOST = 3
"""Tensors that a reason names."""


def main() -> None:
    recipe, pairs = sys.argv[1:]
    configure_jax()
    problem = read_problem(load_recipe(recipe), progress=False)
    known: dict[Variant, dict[str, int]] = {}
    for pair in json.loads(pairs):
        keeps_more, keeps_less = (Variant(*each) for each in pair)
        for variant in (keeps_more, keeps_less):
            if variant not in known:
                known[variant] = at_peak(compiled(problem, variant))
        found = {"keeps_more": keeps_more.remat, "tensors": grown(known[keeps_more], known[keeps_less])}
        print(json.dumps(keeps_less._asdict() | found), flush=True)


def compiled(problem: Problem, variant: Variant) -> jax.stages.Compiled:
    """A variant's step, only to be looked at."""
    execution = execution_with(problem, *variant[:3]).with_training(remat=variant.remat)
    return compile_with_barriers(execution.lower_update(), to_run=False)


def at_peak(program: jax.stages.Compiled) -> dict[str, int]:
    """Bytes live at a program's peak by tensor, and the gaps between them; tensors of one name are added up.

    A name has the stage, the relation or node type where the operation's scope has one, the operation and the shape.
    Results that are no temporaries count as well, arguments do not.

    Raises:
        ValueError: this XLA gives no buffer assignment.
    """
    module, rows = hlo.parse(program.as_text() or ""), assigned_rows(program)
    if rows is None:
        raise ValueError("this XLA tells no buffer assignment, so tensors at the peak have no places")
    scopes = attribute(module)
    names = {
        each.name: Attribution({Scope(name_of(each, scopes.get(each.name)), "forward"): 1.0}, "named")
        for computation in module.executed.values()
        for each in computation.instructions.values()
    }
    memory: Any = program.memory_analysis()
    temp_bytes = int(memory.temp_size_in_bytes)
    line = timeline(module, names, rows, temp_bytes, "buffer assignment")
    found = {name.rpartition(".")[0]: num_bytes for name, num_bytes in line.peak_by_stage.items()}
    return found | {APART: max(0, temp_bytes - line.peak_bytes)}


def name_of(instruction: hlo.Instruction, attribution: Attribution | None) -> str:
    """Stage, part, operation and shape of what an instruction makes."""
    main = attribution.main if attribution else None
    where = [each for each in (main.stage, main.part) if each] if main else []
    operation = instruction.op_name.split(";")[0].rpartition("/")[2] or instruction.opcode
    shapes = [f"{each.dtype}[{','.join(map(str, each.dims))}]" for each in instruction.arrays]
    return " ".join([*where, operation, *sorted(set(shapes), key=shapes.index)])


def grown(before: Mapping[str, int], after: Mapping[str, int], most: int = MOST) -> list[tuple[str, int]]:
    """Tensors of which more bytes are live at the second peak than at the first, the largest difference first."""
    difference = Counter(dict(after))
    difference.subtract(before)
    return [(name, num_bytes) for name, num_bytes in difference.most_common(most) if num_bytes > 0]


if __name__ == "__main__":
    main()
