"""`python -m jhgnn.profiling.replay RECIPE`: two steps without a trace, for tools that watch from outside."""

import sys
from pathlib import Path

import jax

from jhgnn.config.recipe import load_recipe
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.mesh import local
from jhgnn.training.prepare import prepare

STEPS = 2
"""The second runs with warm caches."""


def replay(recipe: Path) -> float:
    """Runs the steps; the loss before the last one.

    Raises:
        InputError: as `jhgnn.training.prepare.prepare`.
    """
    config = load_recipe(recipe)
    execution = prepare(config, progress=False)
    programs = execution.compile()
    state = programs.place(execution.initial_state(config.run.seed))
    loss = 0.0
    for batch, _ in zip(programs.feed(config.run.seed).iterate(Cursor()), range(STEPS), strict=False):
        state, report = programs.update(state, batch)
        loss = float(local(jax.block_until_ready(report).loss))
    return loss


if __name__ == "__main__":
    replay(Path(sys.argv[1]))
