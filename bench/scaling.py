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
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jhgnn.config import Config
from jhgnn.recipe import override
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.minibatch_problem import prepare_minibatches
from jhgnn.training.minibatch_programs import Feed, compile_minibatches, train_batches
from jhgnn.training.optimizer import make_optimizer
from jhgnn.training.parallel import local
from jhgnn.training.state import init_params, init_state

ROOT = Path(__file__).parents[1]
DEVICES = (1, 2, 4, 8)
_COLLECTIVE = re.compile(
    r"= (\(?[a-z0-9\[\],{} ]+\)?) (all-reduce|all-gather|reduce-scatter|collective-permute)(?:-start)?\("
)
_SHAPE = re.compile(r"[a-z]+(\d+)\[([\d,]*)\]")


def collectives(hlo: str) -> dict[str, dict[str, int]]:
    """Kind -> how many of it a program has, and the bytes of their results on one device."""
    found: dict[str, dict[str, int]] = {}
    for shapes, kind in _COLLECTIVE.findall(hlo):
        entry = found.setdefault(kind, {"count": 0, "bytes": 0})
        entry["count"] += 1
        for bits, sizes in _SHAPE.findall(shapes):
            entry["bytes"] += int(np.prod([int(size) for size in sizes.split(",") if size])) * int(bits) // 8
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--scale", type=float, default=0.02, help="of the synthetic MAG")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "scaling.json")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    tables: dict[str, Any] = {
        "data": {"preset": "mag", "scale": options.scale, "reverse_relations": True},
        "model": {"name": "rgcn", "layers": 2},
        "sampling": {"batch_size": 256, "fan_out": [10, 5]},
        "training": {"optimizer": "sgd", "learning_rate": 0.05},
    }
    config = override(Config(), tables, where="bench.scaling")
    problem = prepare_minibatches(config, progress=False)
    batches = train_batches(problem, config)
    optimizer = make_optimizer(config.training, batches.steps_per_epoch)
    rows, first = [], None
    for devices in DEVICES:
        own = dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=devices))
        programs = compile_minibatches(problem, own)
        state = init_state(init_params(config.model, problem.spec, 0), optimizer, 0)
        state, ms = programs.fleet.replicate(state), []
        feed = Feed(problem, programs, own, batches).iterate(Cursor())
        for fed, _ in zip(feed, range(options.steps), strict=False):
            began = time.perf_counter()
            state, report = programs.steps[fed.bucket](state, programs.resident, fed.share)
            jax.block_until_ready(report)
            ms.append(1e3 * (time.perf_counter() - began))
        feed.close()
        params = jax.tree.map(lambda leaf: np.asarray(local(leaf)), state.params)
        first = first or params
        gap = max(float(np.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (params, first)), strict=True))
        rows.append(
            {
                "devices": devices,
                "collectives": collectives(programs.step.call.as_text() or ""),
                "largest_gap": gap,
                "step_ms": round(statistics.median(ms[3:]), 2),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    result = {
        "study": "scaling",
        "recipe": tables,
        "steps": options.steps,
        "machine": f"{os.cpu_count()} cores",
        "commit": commit.stdout.strip(),
        "versions": {"jax": jax.__version__},
        "rows": rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.output.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(options.output)


if __name__ == "__main__":
    main()
