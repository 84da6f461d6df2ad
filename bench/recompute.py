"""What recomputing costs and what it saves, for every model, data set, policy, implementation and number type.

    python -m bench.recompute --all             everything that is not stored yet, and the pages
    python -m bench.recompute --cases rgcn_acm  one case, or several
    python -m bench.recompute --config RECIPE   a recipe of your own
    python -m bench.recompute --check           what is missing or older than the code that it measures
    python -m bench.recompute --verify          the same, and parts whose programs are still the same become current
    python -m bench.recompute --tables          only the pages, from what is stored
    python -m bench.recompute --fit             rates of jhgnn/planning/time_model.py from what is stored

The pages are docs/recompute.md and docs/recompute_figures.md. A case has parts, and each is stored when it is done, in
bench/results/recompute/NAME.json: `cpu` (memory as compiled and as measured, and steps in turns), `peaks` (where a
policy needs more memory than one that keeps more: the tensors that make it so), `peers` (DGL and PyG at the same work,
with and without their own recomputation; needs `.venv-peers`, which `make compare` makes) and one for each GPU (the
programs compiled for it, which is not here; makes `.venv-gpu`). Cut, the same command goes on where it was. On two
cores of an Intel Xeon, of all cases together, `cpu` takes 3 h 32 min (2 to 40 minutes a case), `peaks` 3 minutes and
`peers` 58 (1 to 12 a case), and each GPU about 1 h 40 min (2 to 17 a case, the longest for R-GAT on AIFB, of which two
programs take 16 GiB each to compile): nine to ten hours in all.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.comparison.environment import machine
from bench.gpu.environment import run_python
from bench.recipes import is_recipe
from bench.recompute_study.budgets import out_of_order
from bench.recompute_study.cases import StudyCase, all_cases
from bench.recompute_study.fit import cpu_rows, fit
from bench.recompute_study.gpus import STUDIED, compile_for
from bench.recompute_study.page import DOCS, write_documents
from bench.recompute_study.peers import measure_peers
from bench.recompute_study.plots import draw_all
from bench.recompute_study.variants import IMPLEMENTATIONS, Variant, implementations
from bench.record import BESIDE_PROGRAMS, ROOT, STEP_SOURCES, changed_since, commit, store
from bench.record import RESULTS as STORED
from bench.resumable import end
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import to_toml
from jhgnn.errors import InputError
from jhgnn.runtime.files import write_text

RESULTS = STORED / "recompute"
PACKAGE = (*STEP_SOURCES, "bench/recompute_study/variants.py")
SOURCES = {
    "cpu": (*PACKAGE, *(f"bench/recompute_study/{name}.py" for name in ("programs", "cell", "rounds"))),
    "peaks": (*PACKAGE, "bench/recompute_study/peaks.py"),
    "peers": ("bench/peers", "bench/comparison/cases.py", "bench/recompute_study/peers.py"),
} | dict.fromkeys(STUDIED, (*PACKAGE, "bench/recompute_study/gpu_worker.py", "bench/gpu/programs.py"))
"""Part -> what its figures are made from; the recipe itself is stored beside them and compared."""

PARTS = tuple(SOURCES)
LIMIT_S = 5400.0
"""Of one process."""

CELL_STEPS = 2
Row = dict[str, Any]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(prog="python -m bench.recompute", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = [case.name for case in all_cases()]
    parser.add_argument("--all", action="store_true", help="every case")
    parser.add_argument("--cases", nargs="+", metavar="NAME", choices=known, help=f"of {', '.join(known)}")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--name", default="", help="of a recipe's result; by default the recipe's file name")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored and current")
    parser.add_argument(
        "--check", action="store_true", help="say what is missing or old, and end with 1 if anything is"
    )
    parser.add_argument("--verify", action="store_true", help="trace what is older than the code, to see if it changed")
    parser.add_argument("--tables", action="store_true", help="only write the page and its plots")
    parser.add_argument("--fit", action="store_true", help="only fit the time model to the stored results")
    parser.add_argument("--implementations", nargs="+", choices=[*IMPLEMENTATIONS, "fanout"], help="only these")
    parser.add_argument("--rounds-s", type=float, default=60.0, help="of rounds of an implementation, if noise is left")
    add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = parse(arguments)
        if options.verify:
            verify()
        if options.check or options.verify:
            return check()
        if options.fit:
            print(json.dumps(fit(stored()), indent=1))
            return 0
        if not options.tables:
            chosen = cases_of(options)
            for case in chosen:
                study(case, options)
        write_pages()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def cases_of(options: argparse.Namespace) -> list[StudyCase]:
    """What the options ask for.

    Raises:
        InputError: they ask for nothing.
    """
    if options.config:
        return [StudyCase(options.name or Path(options.config).stem, from_options(options))]
    if not (options.all or options.cases):
        raise InputError("command line: give --all, --cases NAME or --config RECIPE; --help lists the cases")
    return [case for case in all_cases() if options.all or case.name in options.cases]


def stored() -> list[dict[str, Any]]:
    """All results, in the order of the cases, a user's own recipes after them.

    Raises:
        InputError: there is none yet.
    """
    order = [case.name for case in all_cases()]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    if not found:
        raise InputError(f"{RESULTS} holds no results yet; run python -m bench.recompute --all first")
    return sorted(found, key=lambda each: order.index(each["case"]) if each["case"] in order else len(order))


def write_pages() -> None:
    """The pages and their plots from all that is stored."""
    results = stored()
    write_documents(results, DOCS)
    draw_all(results, DOCS / "images")


def check() -> int:
    """Says what is missing or old; 1 if anything is."""
    wrong = [f"{case.name} {part}: {why}" for case in all_cases() for part in PARTS if (why := not_current(case, part))]
    print(*wrong, sep="\n", file=sys.stderr)
    print(f"{len(all_cases()) * len(PARTS) - len(wrong)} of {len(all_cases()) * len(PARTS)} parts are current")
    return int(bool(wrong))


def read(case: StudyCase) -> dict[str, Any]:
    """The stored result, or an empty one."""
    path = RESULTS / f"{case.name}.json"
    recipe = to_toml(case.config)
    fresh: dict[str, Any] = {"case": case.name, "model": case.config.model.name, "recipe": recipe, "parts": {}}
    if not path.exists():
        return fresh
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found if is_recipe(found["recipe"], case.config) else fresh


def not_current(case: StudyCase, part: str) -> str:
    """Why a part is to be measured (again); empty where it is not."""
    found = read(case)["parts"].get(part)
    if found is None:
        return "not measured"
    if changed_since(found["commit"], *SOURCES[part]):
        return f"of {found['commit']}, and what it measures has changed since"
    return ""


def verify() -> None:
    """Traces the variants of parts that are older than the code; those whose programs are the same become current."""
    for case in all_cases():
        result = read(case)
        for part in PARTS:
            if part in ("peaks", "peers") or part not in result["parts"] or not not_current(case, part):
                continue
            beside = [name for name in SOURCES[part] if name.startswith("bench/")]
            if changed_since(result["parts"][part]["commit"], *BESIDE_PROGRAMS, *beside):
                continue
            rows = [row for row in result["parts"][part]["rows"] if "program" in row]
            stored_programs = {key_of(row): row["program"] for row in rows}
            if traced(case, part, list(dict.fromkeys(row["implementation"] for row in rows))) == stored_programs:
                result["parts"][part]["commit"] = commit()
                store(RESULTS / f"{case.name}.json", result)
                say(f"{case.name} {part}: the same programs")


def key_of(row: Row) -> tuple[Any, ...]:
    """The variant of a row."""
    return tuple(row[field] for field in Variant._fields)


def traced(case: StudyCase, part: str, names: list[str]) -> dict[tuple[Any, ...], str]:
    """Variant -> the program that it is today."""
    request = json.dumps({"recipe": to_toml(case.config), "where": part, "implementations": names})
    if part == "cpu":
        answer, _ = run("bench.recompute_study.traced", request)
    else:
        answer = run_python(["-m", "bench.recompute_study.traced", request]).stdout
    rows = [json.loads(line) for line in answer.splitlines()]
    return {key_of(row): row["program"] for row in rows}


def study(case: StudyCase, options: argparse.Namespace) -> None:
    """Measures the parts of a case that are not current, and stores each when it is done."""
    measures: dict[str, Callable[[StudyCase, argparse.Namespace], list[Row]]] = {
        "cpu": on_cpu,
        "peaks": at_peaks,
        "peers": with_peers,
    }
    for part in options.parts:
        if not options.fresh and not not_current(case, part):
            continue
        say(f"{case.name} {part} ...")
        began, load = time.monotonic(), os.getloadavg()[0]
        rows = measures[part](case, options) if part in measures else compile_for(part, case.config)
        described = machine()
        result = read(case)
        result.setdefault("size", size_of(case))
        result["parts"][part] = {
            "commit": commit(),
            "machine": f"{described['processor']}, {described['cores']} cores, {described['memory_gib']} GiB",
            "jax": version("jax"),
            "load_average": round(load, 2),
            "took_s": round(time.monotonic() - began),
            "rows": rows,
        }
        store(RESULTS / f"{case.name}.json", result)
        say(f"{case.name} {part}: {len(rows)} rows, took {time.monotonic() - began:.0f} s")


def size_of(case: StudyCase) -> dict[str, int]:
    """Nodes and edges of a case's graph, of all types."""
    from jhgnn.training.problem import read_problem

    graph = read_problem(case.config, progress=False).graph
    return {"nodes": sum(graph.num_nodes.values()), "edges": sum(each.num_edges for each in graph.edges.values())}


def on_cpu(case: StudyCase, options: argparse.Namespace) -> list[Row]:
    """Every variant compiled, its steps in turns with those of its implementation, and its memory by itself.

    Raises:
        InputError: no variant compiled.
    """
    config, rows = case.config, []
    with tempfile.TemporaryDirectory() as folder:
        recipe, output = Path(folder) / "recipe.toml", Path(folder) / "rows.json"
        write_text(recipe, to_toml(config))
        for implementation in options.implementations or implementations(config):
            output.unlink(missing_ok=True)
            command = ("bench.recompute_study.programs", str(recipe), str(output), str(options.rounds_s))
            _, failure = run(*command, implementation)
            if output.exists():
                rows += json.loads(output.read_text(encoding="utf-8"))
            else:
                rows.append({"implementation": implementation, "refused": failure})
        measured: dict[str, Row] = {}
        for row in rows:
            if not row.get("steps_s"):
                continue
            if row["program"] not in measured:
                variant = [str(row[field]) for field in Variant._fields]
                answer, _ = run("bench.recompute_study.cell", str(recipe), str(CELL_STEPS), *variant)
                measured[row["program"]] = json.loads(answer.splitlines()[-1]) if answer else {}
            row |= measured[row["program"]]
    if not any("program" in row for row in rows):
        raise InputError(f"{case.name}: no variant of the recipe compiled; the lines above say why")
    return rows


def at_peaks(case: StudyCase, options: argparse.Namespace) -> list[Row]:
    """A row for each pair of the case's programs on this CPU that are out of order in memory, with the reason.

    Raises:
        InputError: the part `cpu` is missing, or the pairs' process failed.
    """
    del options
    result = read(case)
    if "cpu" not in result["parts"]:
        raise InputError(f"{case.name}: part 'peaks' compares programs of part 'cpu', which is not measured; give both")
    pairs = [[key_of(row) for row in pair] for pair in out_of_order(cpu_rows(result))]
    if not pairs:
        return []
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        write_text(recipe, to_toml(case.config))
        answer, failure = run("bench.recompute_study.peaks", str(recipe), json.dumps(pairs))
    if failure:
        raise InputError(f"{case.name}: part 'peaks': {failure}; the lines above say why")
    return [json.loads(line) for line in answer.splitlines()]


def with_peers(case: StudyCase, options: argparse.Namespace) -> list[Row]:
    """DGL and PyG on the same graph."""
    from jhgnn.training.problem import read_problem

    config = case.config
    graph, threads = read_problem(config, progress=False).graph, os.cpu_count() or 1
    return measure_peers(graph, config, case.name.partition("_")[2], threads, options.rounds_s)


def run(module: str, *arguments: str) -> tuple[str, str]:
    """A fresh process's output, and how it failed or that it took too long, which stderr says as well; else empty."""
    start = time.monotonic()
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        failure = f"its process took over {LIMIT_S:.0f} s"
    else:
        if not done.returncode:
            return done.stdout, ""
        killed = " (killed, as the system does when memory runs out)" if done.returncode == -signal.SIGKILL else ""
        failure = f"its process ended with status {done.returncode}{killed} after {time.monotonic() - start:.0f} s"
    print(f"{module}: {failure}", file=sys.stderr)
    return "", failure


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    end(main)
