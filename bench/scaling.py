"""Data parallelism on 1, 2, 4 and 8 forced CPU devices: what the devices exchange in a step, and that they agree.

Collectives and their bytes are read from the compiled update. The gap is the largest difference of any parameter from
one device's after the given steps, under SGD, since Adam amplifies the rounding of gradients that cancel. Times of
forced devices on few cores show overhead, not scaling.

    python -m bench.scaling
"""

import argparse
import dataclasses
import json
import os
import statistics
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bench.record import RESULTS, commit, store
from bench.stepper import Stepper
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.training.execution import as_host
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import read_problem

DEVICES = (1, 2, 4, 8)
WARM_UP_STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--scale", type=float, default=0.02, help="of the synthetic MAG")
    parser.add_argument("--output", type=Path, default=RESULTS / "scaling.json")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    tables: dict[str, Any] = {
        "data": {"preset": "mag", "scale": options.scale, "reverse_relations": True},
        "model": {"name": "rgcn", "layers": 2},
        "sampling": {"batch_size": 256, "fan_out": [10, 5]},
        "training": {"optimizer": "sgd", "learning_rate": 0.05},
    }
    config = override(Config(), tables, where="bench.scaling")
    problem = read_problem(config, progress=False)
    rows, first = [], None
    for devices in DEVICES:
        own = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=devices))
        programs = execution_of(dataclasses.replace(problem, config=own)).compile()
        stepper = Stepper.begin(programs)
        ms = [1e3 * stepper.step().update_s for _ in range(options.steps)]
        stepper.close()
        params = jax.tree.map(np.asarray, as_host(stepper.state.params))
        first = first or params
        gap = max(float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (params, first)), strict=True))
        exchanged = collectives(parse(programs.step.call.as_text() or ""))
        rows.append(
            {
                "devices": devices,
                "collectives": {k: {"count": x.count, "bytes": x.num_bytes} for k, x in exchanged.items()},
                "largest_gap": gap,
                "step_ms": round(statistics.median(ms[WARM_UP_STEPS:] or ms), 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "study": "scaling",
        "recipe": tables,
        "steps": options.steps,
        "machine": f"{os.cpu_count()} cores",
        "commit": commit(),
        "versions": {"jax": jax.__version__},
        "rows": rows,
    }
    store(options.output, result)


if __name__ == "__main__":
    main()
