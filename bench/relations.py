"""How compilation and a step grow with the number of relations, packed and apart: `python -m bench.relations`.

One graph of one node type, whose edges are divided among 10, 50 or 500 relations, the largest first as in knowledge
graphs. R-GCN and R-GAT are traced and compiled anew in each round, all cases in turn, and the medians are stored. With
`--page` the table and the plot of docs/performance.md are written. About 10 minutes on 2 cores.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bench.pages import write_between
from bench.record import RESULTS, ROOT, commit, store
from bench.stepper import Stepper
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.profiling.hlo import parse
from jhgnn.runtime.step_memory import keep_step_memory
from jhgnn.training.execution import Execution
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.programs import compile_lowered

NUM_NODES, NUM_EDGES = 10_000, 60_000
RELATIONS = (10, 50, 500)
MOST_APART = 50
"""Relations up to which they are compiled apart as well: 500 take minutes."""
MODELS: dict[str, dict[str, Any]] = {
    "rgcn": {"name": "rgcn", "layers": 2, "hidden": 16},
    "rgat": {"name": "rgat", "layers": 2, "hidden": 32, "heads": 4},
}
PAGE, PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "images" / "relations.png"
BEGIN, END = "<!-- relations: begin -->", "<!-- relations: end -->"


class Case(NamedTuple):
    """A model along so many relations, `packed` or `apart`."""

    model: str
    relations: int
    form: str


CASES = tuple(
    Case(model, relations, form)
    for model in MODELS
    for relations in RELATIONS
    for form in ("packed", "apart")
    if form == "packed" or relations <= MOST_APART
)


def graph_of(num_relations: int, seed: int = 0) -> HeteroGraph:
    """`NUM_EDGES` edges among `NUM_NODES` nodes of one type; relation number i has a share in proportion to 1 / i."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, num_relations + 1)
    sizes = np.maximum(1, np.round(NUM_EDGES * shares / shares.sum())).astype(int)
    return HeteroGraph.from_arrays(
        name=f"{num_relations} relations",
        num_nodes={"entity": NUM_NODES},
        edges={
            ("entity", f"r{number}", "entity"): tuple(rng.integers(0, NUM_NODES, (2, size)))
            for number, size in enumerate(sizes)
        },
        target="entity",
        labels=rng.integers(0, 4, NUM_NODES),
        num_classes=4,
        splits={"train": np.arange(200), "val": np.arange(200, 400)},
    )


def execution_for(case: Case) -> Execution:
    """Over all rows of the graph."""
    tables = {
        "model": MODELS[case.model] | {"bases": 0},
        "training": {"rows": "all"},
        "kernels": {"relations": case.form},
        "sgb": {"cache_dir": ""},
    }
    return execution_of(pose(graph_of(case.relations), override(Config(), tables, where="bench.relations")))


def compiled(execution: Execution) -> dict[str, float]:
    """Seconds of tracing the update and of compiling it, and its instructions."""
    jax.clear_caches()
    start = time.perf_counter()
    lowered = execution.lower_update()
    traced = time.perf_counter()
    program = compile_lowered(lambda: lowered)
    done = time.perf_counter()
    module = parse(program.call.as_text() or "")
    instructions = sum(len(computation.instructions) for computation in module.computations.values())
    return {"trace_s": traced - start, "compile_s": done - traced, "instructions": instructions}


def steps_ms(execution: Execution, count: int) -> float:
    """The median of steps after the first three."""
    stepper = Stepper.begin(execution.compile())
    found = [1e3 * stepper.step().update_s for _ in range(count + 3)][3:]
    stepper.close()
    return statistics.median(found)


def measure(rounds: int, steps: int) -> list[dict[str, Any]]:
    """A row a case."""
    executions = {case: execution_for(case) for case in CASES}
    found: dict[Case, list[dict[str, float]]] = {case: [] for case in CASES}
    for number in range(rounds):
        for case, execution in executions.items():
            found[case].append(compiled(execution))
            print(f"round {number + 1} of {rounds}: {' '.join(map(str, case))}: {found[case][-1]}", flush=True)
    rows = []
    for case, execution in executions.items():
        medians = {key: statistics.median(each[key] for each in found[case]) for key in found[case][0]}
        rows.append(case._asdict() | medians | {"step_ms": steps_ms(execution, steps)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | relations | | instructions | traced, s | compiled, s | a step, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['model']} | {row['relations']} | {row['form']} | {row['instructions']:,.0f} | {row['trace_s']:.2f} |"
        f" {row['compile_s']:.2f} | {row['step_ms']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds until the update is compiled, and its instructions, against relations."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for panel, label, value in (
        (panels[0], "traced and compiled, s", lambda row: row["trace_s"] + row["compile_s"]),
        (panels[1], "instructions", lambda row: row["instructions"]),
    ):
        for model in MODELS:
            for form, style in (("packed", "o-"), ("apart", "s--")):
                own = [row for row in rows if (row["model"], row["form"]) == (model, form)]
                panel.plot(
                    [row["relations"] for row in own], [value(row) for row in own], style, label=f"{model} {form}"
                )
        panel.set_xscale("log")
        panel.set_xticks(RELATIONS, list(map(str, RELATIONS)))
        panel.set_xlabel("relations")
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
    panels[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relations", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="in which every case is compiled anew")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, default=RESULTS / "relations.json")
    parser.add_argument("--page", action="store_true", help="write the table and plot of docs/performance.md as well")
    options = parser.parse_args()
    keep_step_memory()
    rows = measure(options.rounds, options.steps)
    settings = {"nodes": NUM_NODES, "edges": NUM_EDGES, "rounds": options.rounds, "models": MODELS}
    machine = f"{os.cpu_count()} cores"
    store(
        options.output,
        {"study": "relations", "machine": machine, "commit": commit(), "settings": settings, "rows": rows},
    )
    print(table(rows))
    if options.page:
        plot(rows, PLOT)
        head = (
            f"Medians of {options.rounds} rounds, {machine}, commit {commit()}, of `python -m bench.relations --page`."
        )
        write_between(PAGE, BEGIN, END, f"\n{head}\n\n{table(rows)}\n\n![Relations](images/relations.png)\n")


if __name__ == "__main__":
    main()
