"""`python -m bench.gpu predicted`: the time that the study of recomputation predicts, beside what an H200 measured.

Updates of the stored run's epochs are compiled for an H200 that is not here, and their times predicted as
`bench.recompute_study.gpus` predicts those of policies.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from bench.gpu.environment import create_gpu, missing, run_python
from bench.record import RESULTS, commit, store

GPU = "h200"
RUN = RESULTS / "gpu-h200" / "run-3.json"
OUTPUT = RESULTS / "gpu-h200" / "predicted.json"
KERNELS = {
    "auto": {"attention": "native", "mean": "bucketed", "projection": "bucketed"},
    "all native": {"attention": "native", "mean": "native", "projection": "native"},
}
"""What the run's names stood for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--told", action="store_true", help=argparse.SUPPRESS)  # by the environment that compiles


def run(options: argparse.Namespace) -> int:
    """The exit code: 3 where nothing can be compiled for a GPU here."""
    if options.told:
        for row in rows():
            print(json.dumps(row), flush=True)
        return 0
    problem = create_gpu() or missing()
    if problem:
        print(f"skipped: {problem}", file=sys.stderr)
        return 3
    done = run_python(["-m", "bench.gpu", "predicted", "--told"])
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for row in found:
        print(f"{row['case']} {row['implementation']}: {row['predicted_ms']:.2f} ms, measured {row['measured_ms']:.2f}")
    ratios = [row["predicted_ms"] / row["measured_ms"] for row in found]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"predicted over measured: {min(ratios):.2f} to {max(ratios):.2f}, {mean:.2f} in the geometric mean")
    store(OUTPUT, {"commit": commit(), "gpu": GPU, "geometric_mean": mean, "rows": found})
    return 0


def rows() -> Iterator[dict[str, Any]]:
    """A row an update; in the environment that compiles for GPUs."""
    from bench.comparison.cases import Case, problem_of, recipe
    from bench.recompute_study.gpu_worker import figures
    from bench.recompute_study.gpus import predicted_s
    from jhgnn.config.recipe import override
    from jhgnn.data import load
    from jhgnn.runtime.platform import compiling_for
    from jhgnn.training.prepare import execution_of

    measured = [
        row
        for item in json.loads(RUN.read_text(encoding="utf-8"))["items"].values()
        for row in item["rows"]
        if row["kind"] == "epoch" and row["implementation"] in KERNELS
    ]
    for row in measured:
        model, _, dataset = row["case"].partition("-")
        graph = load("synthetic", dataset, progress=False)
        unused = "attention" if model == "rgcn" else "mean"
        kernels = {key: name for key, name in KERNELS[row["implementation"]].items() if key != unused}
        config = override(recipe(Case(model, dataset)), {"kernels": kernels, "sgb": {"cache_dir": ""}}, "bench.gpu")
        with compiling_for("cuda"):
            execution = execution_of(problem_of(graph, config))
        found = figures(execution, GPU, {}) | {"dtype": "float32"}
        yield {
            "case": row["case"],
            "implementation": row["implementation"],
            "launches": found["launches"],
            "predicted_ms": 1e3 * predicted_s(found, GPU),
            "measured_ms": row["in_a_row"]["ms"],
        }
