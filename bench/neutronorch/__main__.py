"""Hot vertices against plain sampling, on R-GCN of two layers, and on R-GAT and HAN.

    python -m bench.neutronorch rows gradients times convergence --data mag --scale 0.1
    python -m bench.neutronorch gradients convergence --model han --data acm

`rows`: distinct rows that a batch reads and bytes to the device, by share of hot vertices. `gradients`: cosine, norm
and bias against the gradient over all neighbours: plain sampling, and the modes exact, stale and literal.
`times`: targets a second in interleaved rounds, and the first layer's share of a step. `convergence`: validation scores
after equal steps, of the same ways, with a histogram of the ages of reused rows: index i counts those of i updates. In
exact mode nothing is ever stale. It is R-GCN's alone; so are `rows` and `times`, which measure it.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import jax

from bench.comparison.cases import MODELS
from bench.neutronorch import convergence, gradients, rows, times
from bench.neutronorch.problems import SMALL, read
from bench.record import RESULTS, commit, store
from jhgnn.runtime.console import Say

PARTS = ("rows", "gradients", "times", "convergence")
OF_ALL_MODELS = ("gradients", "convergence")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neutronorch", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="what to measure; default all")
    parser.add_argument("--model", choices=MODELS, default="rgcn")
    parser.add_argument("--data", choices=(*SMALL, "mag"), default="mag")
    parser.add_argument("--scale", type=float, default=0.1, help="of the synthetic MAG")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=0,
        help="targets a batch; 0: of MAG the recipe's 1,024 times the scale, so that a batch meets as large a part of"
        " the graph as at full size; of the others 64",
    )
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.1, 0.2], help="of hot vertices")
    parser.add_argument("--steps", type=int, default=20, help="batches counted, or of a timed round")
    parser.add_argument("--rounds", type=int, default=5, help="of timing")
    parser.add_argument("--batches", type=int, default=4, help="of gradients")
    parser.add_argument("--draws", type=int, default=16, help="of each of these batches")
    parser.add_argument("--seeds", type=int, default=5, help="of convergence")
    parser.add_argument("--train-steps", type=int, default=100, help="before gradients, and of convergence")
    parser.add_argument("--output", type=Path, help="in bench/results by default, by model, data and part")
    options = parser.parse_args()
    parts = options.parts or (PARTS if options.model == "rgcn" else OF_ALL_MODELS)
    if options.model != "rgcn" and (others := [part for part in parts if part not in OF_ALL_MODELS]):
        parser.error(f"{others[0]} is measured in exact mode, which is R-GCN's: leave --model {options.model} out")
    problem, say = read(options.data, options.scale, options.batch_size, options.model), Say()
    result: dict[str, Any] = {
        "study": "neutronorch",
        "options": {name: value for name, value in vars(options).items() if name not in ("output", "parts")},
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "commit": commit(),
        "versions": {"jax": jax.__version__},
    }
    for part in parts:
        result[part] = _measured(part, problem, options)
        _show(say, part, result[part])
    result["load_at_the_end"] = round(os.getloadavg()[0], 1)
    alone = f"{options.parts[0]}_" if len(options.parts) == 1 else ""
    model = "" if options.model == "rgcn" else f"{options.model}_"
    name = f"neutronorch_{alone}{model}{options.data}.json"
    store(options.output or RESULTS / name, result)


def _measured(part: str, problem: Any, options: argparse.Namespace) -> Any:
    if part == "rows":
        return rows.count(problem, [0.0, *options.shares], options.steps)
    if part == "gradients":
        return gradients.compare(
            problem, options.shares, batches=options.batches, draws=options.draws, warm_up=options.train_steps
        )
    if part == "convergence":
        return convergence.compare(problem, options.shares[-1], seeds=options.seeds, steps=options.train_steps)
    return {
        "paired": times.paired(problem, options.shares, rounds=options.rounds, steps=options.steps),
        "first_layer": times.first_layer(problem, options.shares) if options.data == "mag" else [],
    }


def _show(say: Say, part: str, found: Any) -> None:
    for title, table in found.items() if isinstance(found, dict) else [(part, found)]:
        if not table:
            continue
        flat = [
            {
                f"{name} {inner}".strip(): own
                for name, value in row.items()
                for inner, own in (value.items() if isinstance(value, dict) else [("", value)])
                if not isinstance(own, list)
            }
            for row in table
        ]
        say.table(title, list(flat[0]), [[_text(row.get(name, "")) for name in flat[0]] for row in flat])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
