"""`python -m jhgnn.profiling.replay RECIPE`: two steps without a trace, for tools that watch from outside."""

import sys
from pathlib import Path

import jax

from jhgnn.recipe import load_recipe
from jhgnn.training import loop
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.problem import prepare
from jhgnn.training.state import init_params, init_state

STEPS = 2
"""The second runs with warm caches."""


def replay(recipe: Path) -> float:
    """Runs the steps; the loss before the last one.

    Raises:
        InputError: as `jhgnn.training.problem.prepare`.
    """
    config = load_recipe(recipe)
    problem = prepare(config, progress=False)
    programs = loop.compile_programs(problem, config)
    state = init_state(
        init_params(config.model, problem.spec, config.run.seed), make_optimizer(config.training), config.run.seed
    )
    for _ in range(STEPS):
        state, report = programs.step(state, *problem.step_arguments)
        jax.block_until_ready((state, report))
    return float(report.loss)


if __name__ == "__main__":
    replay(Path(sys.argv[1]))
