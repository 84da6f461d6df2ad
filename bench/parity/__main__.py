"""`python -m bench.parity`: parity of every model and data set with every peer, as a table of relative errors.

Writes `bench/results/parity.json`, keeping rows of cases that were not asked for, and the table of docs/comparison.md.
Both sides are also compared with the peer's model in float64, which tells rounding from a difference in definition.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.comparison.cases import DATASETS, MODELS, Case, read_dataset, recipe, semantic_edges
from bench.comparison.environment import peers_python
from bench.parity.agreement import worst
from bench.parity.ours import write_problem
from bench.parity.table import write_table
from bench.record import RESULTS, ROOT, store

PEERS_PYTHON = peers_python()
STORED = RESULTS / "parity.json"
VARIANTS = {
    "han": {"dgl": ["GATConv"], "pyg": ["HANConv, EdgeIndex"]},
    "rgcn": {
        "dgl": ["HeteroGraphConv(GraphConv)", "HeteroGraphConv(GraphConv), sparse features"],
        "pyg": ["HeteroConv(SAGEConv), edge_index", "HeteroConv(Linear + SimpleConv), sparse adjacency"],
    },
    "rgat": {
        "dgl": ["HeteroGraphConv(GATConv)", "HeteroGraphConv(GATConv), sparse features"],
        "pyg": ["HeteroConv(GATConv), EdgeIndex"],
    },
}
"""One way of each kind; the small graph of `tests/parity` checks all of them."""
REFERENCES = {
    ("dgl", "han", "default"): "GATConv",
    ("dgl", "rgcn", "default"): "HeteroGraphConv(GraphConv)",
    ("dgl", "rgat", "default"): "HeteroGraphConv(GATConv)",
    ("pyg", "han", "default"): "GATConv, EdgeIndex",
    ("pyg", "han", "pyg"): "HANConv, EdgeIndex",
    ("pyg", "rgcn", "default"): "HeteroConv(SAGEConv), edge_index",
    ("pyg", "rgat", "default"): "HeteroConv(GATConv), EdgeIndex",
}
"""Framework, model, definition -> the variant that, in float64, is the reference."""
MOST_EDGES_FLOAT64 = 6_000_000
"""PyG keeps rows of every edge, twice the 6.7 GiB of HAN on ACM in float32: no reference on larger semantic graphs."""

Arrays = Mapping[str, np.ndarray]


class PeerRun(NamedTuple):
    """What a peer computed: `DEFINITION/FEATURES` and its tensors under our names."""

    definition: str
    arrays: Arrays


def run_peer(framework: str, folder: Path, only: Sequence[str] = (), precision: str = "float32") -> dict[str, PeerRun]:
    """Runs a peer on a written problem; results by variant.

    Raises:
        RuntimeError: the peer's process failed; the message ends with what it said.
    """
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "DGLBACKEND": "pytorch", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [str(PEERS_PYTHON), "-W", "ignore", "-m", "bench.parity.peer", str(folder), framework, precision, *only]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{framework}: {done.stderr.strip()[-2000:]}")
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            with np.load(folder / entry["file"], allow_pickle=False) as arrays:
                found[entry["variant"]] = PeerRun(entry["definition"], dict(arrays))
    return found


def reference(framework: str, model: str, definition: str, folder: Path) -> Arrays:
    """Outputs, gradients and steps of Adam of a peer's model in float64."""
    name = REFERENCES[framework, model, definition.partition("/")[0]]
    return run_peer(framework, folder, [name], "float64")[name].arrays


def compare_case(model: str, dataset: str, frameworks: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Rows of one case."""
    graph, config = read_dataset(dataset), recipe(Case(model, dataset))
    ours = write_problem(graph, config, folder)
    num_edges, rows = semantic_edges(graph, config), []
    for framework in frameworks:
        truth: Arrays | None = None
        for variant, (definition, theirs) in run_peer(framework, folder, VARIANTS[model][framework]).items():
            row: dict[str, Any] = {"model": model, "dataset": dataset, "framework": framework, "variant": variant}
            row["errors"] = worst(ours[definition], theirs)
            if framework == "dgl" or num_edges <= MOST_EDGES_FLOAT64:
                truth = truth or reference(framework, model, definition, folder)  # VARIANTS have one definition each
                row["ours_float64"] = worst(ours[definition], truth)
                row["peer_float64"] = worst(theirs, truth)
            rows.append(row)
            shown = ", ".join(f"{kind} {error:.1e} ({tensor})" for kind, (error, tensor) in row["errors"].items())
            print(f"{model} {dataset} {framework} [{variant}]: {shown}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.parity", description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--datasets", nargs="*", default=[name for name in DATASETS if name != "aifb"])
    parser.add_argument("--frameworks", nargs="*", default=["dgl", "pyg"])
    parser.add_argument("--output", type=Path, default=STORED)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "comparison.md", help="with the table's markers")
    options = parser.parse_args()
    rows = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else []
    for dataset in options.datasets:
        for model in options.models:
            with tempfile.TemporaryDirectory() as scratch:
                new = compare_case(model, dataset, options.frameworks, Path(scratch))
            measured = {(row["model"], row["dataset"], row["framework"]) for row in new}
            rows = [row for row in rows if (row["model"], row["dataset"], row["framework"]) not in measured] + new
            rows.sort(key=lambda row: (row["dataset"], MODELS.index(row["model"]), row["framework"], row["variant"]))
            store(options.output, rows)
    write_table(rows, options.page)


if __name__ == "__main__":
    main()
