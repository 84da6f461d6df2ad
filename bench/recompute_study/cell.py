"""One variant in a fresh process: `python -m bench.recompute_study.cell RECIPE IMPLEMENTATION POLICY STEPS`.

The high-water mark of resident memory is set back after compiling, so that it is the steps': what the process holds
anyway (interpreter, XLA, the graph) plus the step's temporaries. `process_peak_bytes` is the whole process's.
"""

import json
import sys
import time
from pathlib import Path

from bench.comparison.protocol import process_peak_bytes


def resident_bytes() -> int:
    """Of this process, now."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    from bench.recompute_study.variants import execution_with
    from bench.stepper import Stepper
    from jhgnn.config.recipe import load_recipe
    from jhgnn.runtime.jax_settings import configure_jax
    from jhgnn.training.problem import read_problem

    recipe, implementation, remat, steps = sys.argv[1:]
    configure_jax()
    start = time.perf_counter()
    execution = execution_with(read_problem(load_recipe(recipe), progress=False), implementation)
    programs = execution.with_training(remat=remat).compile()
    stepper = Stepper.begin(programs, prefetch_threads=0)
    prepared_s, peak = time.perf_counter() - start, process_peak_bytes()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_bytes()
    seconds = [stepper.step().update_s for _ in range(int(steps))]
    high = process_peak_bytes()
    answer = {"before_bytes": before, "steps_peak_bytes": high, "process_peak_bytes": max(peak, high)}
    print(json.dumps(answer | {"prepared_s": prepared_s, "steps_s": seconds}))


if __name__ == "__main__":
    main()
