"""What recomputing costs and what it saves: `python -m bench.recompute --config RECIPE`.

For every implementation of neighbor aggregation and every policy of `training.remat`: memory as compiled and as the
process's high-water mark over steps (a fresh process a cell), what each stage keeps, operations, and step times taken
in turns in one process; DGL and PyG on the same graph where `.venv-peers` has them. Writes
`bench/results/recompute/NAME.json`, `NAME.html` (a report) and `docs/images/recompute_NAME.png`.

    python -m bench.recompute --config configs/han_acm.toml
    python -m bench.recompute --tables     docs/recompute.md from all stored results
    python -m bench.recompute --fit        rates of jhgnn/planning/time_model.py from all stored results
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.comparison.environment import machine
from bench.recompute_study.budgets import ordered, recommended, search_check
from bench.recompute_study.fit import fit
from bench.recompute_study.page import DOCUMENT, write_document
from bench.recompute_study.pareto import draw, write_html
from bench.recompute_study.peers import measure_peers
from bench.recompute_study.variants import implementations
from bench.record import RESULTS as STORED
from bench.record import ROOT, commit
from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError
from jhgnn.runtime.files import write_json, write_text

RESULTS = STORED / "recompute"
IMAGES = ROOT / "docs" / "images"
LIMIT_S = 900.0
"""Of one process."""


def parse() -> argparse.Namespace:
    parser = OneLineParser(prog="python -m bench.recompute", description=__doc__)
    parser.add_argument("--tables", action="store_true", help="only write docs/recompute.md from the stored results")
    parser.add_argument("--fit", action="store_true", help="only fit the time model to the stored results")
    parser.add_argument("--name", default="", help="of the result; by default the recipe's file name")
    parser.add_argument("--rounds", type=int, default=7, help="steps of every variant, in turns")
    parser.add_argument("--cell-steps", type=int, default=2, help="steps of the process that measures memory")
    parser.add_argument("--implementations", nargs="*", help="only these")
    parser.add_argument("--search", action="store_true", help="also time the budget search, with empty caches")
    parser.add_argument("--no-peers", action="store_true", help="leave DGL and PyG out")
    add_options(parser)
    return parser.parse_args()


def main() -> int:
    try:
        options = parse()
        if options.tables:
            write_document(stored(), DOCUMENT)
            return 0
        if options.fit:
            print(json.dumps(fit(stored()), indent=1))
            return 0
        if not options.config:
            raise InputError("command line: --config RECIPE is missing, such as configs/han_acm.toml")
        study(from_options(options), options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def stored() -> list[dict[str, Any]]:
    """All results, in order of names.

    Raises:
        InputError: there is none yet.
    """
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    if not found:
        raise InputError(f"{RESULTS} holds no results yet; run python -m bench.recompute --config RECIPE first")
    return found


def study(config: Config, options: argparse.Namespace) -> None:
    """Measures one recipe and writes everything that is drawn from it."""
    name = options.name or Path(options.config).stem
    chosen = tuple(options.implementations or implementations(config))
    with tempfile.TemporaryDirectory() as folder:
        cells = in_turns(config, chosen, options.rounds, Path(folder))
        say(f"{name}: {sum(bool(cell.get('steps_s')) for cell in cells)} cells timed")
        measured: dict[str, dict[str, Any]] = {}
        for cell in cells:
            if "refused" in cell or "not_run" in cell:
                continue
            if cell["program"] not in measured:  # the same program once
                measured[cell["program"]] = alone(config, cell, options.cell_steps, Path(folder))
            cell |= measured[cell["program"]]
        against_none(cells)
        search_s = search_seconds(config, Path(folder)) if options.search else None
    peers: list[dict[str, Any]] = []
    if not options.no_peers:
        from jhgnn.training.problem import read_problem

        graph = read_problem(config, progress=False).graph
        peers = measure_peers(graph, config, os.cpu_count() or 1, options.rounds)
    described = machine()
    results: dict[str, Any] = {
        "name": name,
        "machine": f"{described['processor']}, {described['cores']} cores, {described['memory_gib']} GiB",
        "jax": version("jax"),
        "commit": commit(),
        "load_average": os.getloadavg()[0],
        "recipe": to_toml(config),
        "cells": cells,
        "peers": peers,
        "search_s": search_s,
        "recommended": recommended(cells),
        "search_check": search_check(cells),
        "out_of_order": ordered(cells),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / f"{name}.json", results)
    write_html(results, RESULTS / f"{name}.html")
    draw(results, IMAGES / f"recompute_{name}.png")
    for row in results["recommended"]:
        say(
            f"from {row['budget_bytes'] / 2**20:,.0f} MiB: {row['implementation']} {row['remat']},"
            f" {row['step_s'] * 1e3:,.1f} ms"
        )
    if search_s is not None:
        say(f"search of the recipe's own implementation: {search_s:.1f} s, nothing cached")


def in_turns(config: Config, chosen: tuple[str, ...], rounds: int, folder: Path) -> list[dict[str, Any]]:
    """The compiled figures and interleaved step times of all variants; what a killed process got to."""
    output = folder / "programs.json"
    run("bench.recompute_study.programs", [*_recipe(config, folder), str(output), str(rounds), *chosen])
    if not output.exists():
        raise InputError("bench.recompute: no variant of the recipe compiled; the lines above say why")
    cells: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
    return cells


def against_none(cells: list[dict[str, Any]]) -> None:
    """Adds what each policy saves of every stage and what it computes more, against `none` of the implementation."""
    bases = {cell["implementation"]: cell for cell in cells if cell.get("remat") == "none"}
    for cell in cells:
        base = bases.get(cell["implementation"])
        if base is None or "kept" not in cell:
            continue
        stages = sorted({*base["kept"], *cell["kept"]})
        cell["saved_bytes"] = {stage: base["kept"].get(stage, 0) - cell["kept"].get(stage, 0) for stage in stages}
        cell["added_flops"] = cell["flops"] - base["flops"]


def alone(config: Config, cell: dict[str, Any], steps: int, folder: Path) -> dict[str, Any]:
    """Memory of one variant in a fresh process."""
    variant = [cell["implementation"], cell["remat"], str(steps)]
    answer = run("bench.recompute_study.cell", [*_recipe(config, folder), *variant])
    if not answer:
        return {}
    told: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return {key: told[key] for key in ("before_bytes", "steps_peak_bytes", "process_peak_bytes")}


def search_seconds(config: Config, folder: Path) -> float:
    """Seconds that the budget search takes to compile its candidates, with empty caches."""
    environment = {"JAX_COMPILATION_CACHE_DIR": str(folder / "empty")}
    answer = run("bench.recompute_study.search", _recipe(config, folder), environment)
    return float(answer.splitlines()[-1]) if answer else float("nan")


def run(module: str, arguments: list[str], environment: dict[str, str] | None = None) -> str:
    """A fresh process's output; empty where it failed or took too long, which stderr says."""
    command = [sys.executable, "-m", module, *arguments]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=dict(os.environ) | (environment or {}),
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        print(f"{module}: over {LIMIT_S:.0f} s", file=sys.stderr)
        return ""
    if done.returncode:
        took = time.monotonic() - start
        print(f"{module}: ended with status {done.returncode} after {took:.0f} s", file=sys.stderr)
        return ""
    return done.stdout


def _recipe(config: Config, folder: Path) -> list[str]:
    path = folder / "recipe.toml"
    write_text(path, to_toml(config))
    return [str(path)]


def version(package: str) -> str:
    """Of an installed package."""
    from importlib import metadata

    return metadata.version(package)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
