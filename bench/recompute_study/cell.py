"""Memory of one variant in a fresh process: `python -m bench.recompute_study.cell RECIPE STEPS` and the variant.

The high-water mark of resident memory is set back after compiling, so that it is the steps': what the process holds
anyway (interpreter, XLA, the graph) plus the step's temporaries. `process_peak_bytes` is the whole process's.
"""

import json
import sys

from bench.comparison.protocol import process_peak_bytes, reset_process_peak


def main() -> None:
    from bench.recompute_study.variants import execution_with
    from bench.stepper import Stepper
    from jhgnn.config.recipe import load_recipe
    from jhgnn.runtime.jax_settings import configure_jax
    from jhgnn.training.problem import read_problem

    recipe, steps, implementation, dtype, micro_batches, remat = sys.argv[1:]
    configure_jax()
    problem = read_problem(load_recipe(recipe), progress=False)
    execution = execution_with(problem, implementation, dtype, int(micro_batches))
    programs = execution.with_training(remat=remat).compile()
    stepper = Stepper.begin(programs, prefetch_threads=0)
    peak = process_peak_bytes()
    before = reset_process_peak()
    for _ in range(int(steps)):
        stepper.step()
    high = process_peak_bytes()
    print(json.dumps({"before_bytes": before, "steps_peak_bytes": high, "process_peak_bytes": max(peak, high)}))


if __name__ == "__main__":
    main()
