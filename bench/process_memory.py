"""What a training process has in memory after each stage of a start: `python -m bench.process_memory --config RECIPE`.

Resident MiB, of which anonymous (heaps) and of files (libraries, mapped data), and the high-water mark so far, as
`/proc/self/status` tells. After compilation free memory is returned to the system, which a run keeps for its steps.
Options are those of `python -m jhgnn.train`; give `--data.path` as there.
"""

import ctypes
import sys
from pathlib import Path

STEPS = 20


def status_mib() -> dict[str, int]:
    """Of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    kinds = {"VmRSS": "resident", "RssAnon": "heaps", "RssFile": "files", "VmHWM": "at most"}
    return {label: int(values[kind].split()[0]) // 1024 for kind, label in kinds.items()}


def show(stage: str) -> None:
    print(f"{stage:32}" + "".join(f"{value:>10,}" for value in status_mib().values()), flush=True)


def main() -> None:
    print(f"{'MiB after':32}" + "".join(f"{label:>10}" for label in status_mib()))
    show("Python")
    import scipy.sparse  # noqa: F401

    show("NumPy and SciPy")
    import jax

    from jhgnn.runtime.step_memory import keep_step_memory

    keep_step_memory()
    jax.devices()
    show("JAX and its client")
    from bench.stepper import Stepper
    from jhgnn.train import parse
    from jhgnn.training.prepare import execution_of
    from jhgnn.training.problem import read_problem

    config, _ = parse(sys.argv[1:])
    show("jhgnn and Flax")
    problem = read_problem(config, progress=False)
    show("data")
    execution = execution_of(problem)
    show("semantic graphs, on the device")
    programs = execution.compile()
    show("programs compiled")
    ctypes.CDLL(None).malloc_trim(0)
    show("free memory returned")
    stepper = Stepper.begin(programs)
    for _ in range(STEPS):
        stepper.step()
    show(f"{STEPS} steps")
    stepper.close()


if __name__ == "__main__":
    main()
