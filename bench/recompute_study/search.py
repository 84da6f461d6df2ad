"""Seconds of the budget search: `python -m bench.recompute_study.search RECIPE`; graph and capacities come before."""

import sys
import time

from bench.recompute_study.runner import problem_of
from jhgnn.planning.budget import candidates
from jhgnn.recipe import load_recipe
from jhgnn.train import configure_jax
from jhgnn.training.problem import read


def main() -> None:
    config = load_recipe(sys.argv[1])
    configure_jax()
    problem = problem_of(read(config, progress=False), config)
    start = time.perf_counter()
    candidates(problem, config)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
