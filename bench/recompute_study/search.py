"""Seconds of the budget search: `python -m bench.recompute_study.search RECIPE`; graph and capacities come before."""

import sys
import time

from jhgnn.config.recipe import load_recipe
from jhgnn.planning.budget import candidates
from jhgnn.runtime.jax_settings import configure_jax
from jhgnn.training.prepare import prepare


def main() -> None:
    configure_jax()
    execution = prepare(load_recipe(sys.argv[1]), progress=False)
    execution.resident_bytes()  # of mini-batches it learns the capacities
    start = time.perf_counter()
    candidates(execution)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
