"""What `format = "rdf"` alone reaches on generated molecules, and what other settings reach.

    python -m bench.rdf_settings --graphs 2    about a quarter of an hour on 2 cores
    python -m bench.rdf_settings --write DIR   only writes the first graph there

A user of RDF data names its format and its folder, and nothing else. Each graph is written as the files that R-GCN's
code ships (N-Triples and two TSVs) and trained by that command over ten seeds. In the graphs of
`bench.comparison.molecules`, tests and groups of atoms tell a class only as often as `--signal` says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.comparison.molecules import molecules
from jhgnn.graph.hetero_graph import HeteroGraph

SETTINGS = {
    "the format alone": (),
    "embeddings": ("--data.one_hot", "false"),
    "embeddings, dropout of 0.5": ("--data.one_hot", "false", "--model.dropout", "0.5"),
    "dropout of 0.5": ("--model.dropout", "0.5"),
}
"""In words -> options beside the format and the folder."""

HOST = "http://molecules/"


def write_rdf(graph: HeteroGraph, folder: Path) -> None:
    """Writes a graph of one node type without features; training and validation nodes become the training set."""
    assert graph.labels is not None
    lines = []
    for relation, edges in graph.edges.items():
        if not relation.name.startswith("rev_"):
            pairs = zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True)
            lines += [
                f"<{HOST}{sender}> <{HOST}has/{relation.name}> <{HOST}{receiver}> .\n" for sender, receiver in pairs
            ]
    (folder / "molecules.nt").write_text("".join(lines), encoding="utf-8")
    train = np.concatenate([graph.splits["train"], graph.splits["val"]])
    splits = {"trainingSet": train, "testSet": graph.splits["test"]}
    for name, nodes in splits.items():
        rows = (f"{HOST}{node}\t{graph.labels[node]}\n" for node in nodes)
        (folder / f"{name}.tsv").write_text("".join(["entity\tlabel\n", *rows]), encoding="utf-8")


def score(folder: Path, seeds: int, options: Iterable[str]) -> float:
    """Mean test micro-F1 of the command over its seeds, in percent."""
    run = folder / "run"
    command = [sys.executable, "-m", "jhgnn.train", "--data.format", "rdf", "--data.path", str(folder / "data")]
    subprocess.run(
        [*command, "--seeds", str(seeds), "--run.dir", str(run), *options],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return 100.0 * float(json.loads((run / "summary.json").read_text(encoding="utf-8"))["test_micro_f1"])


def main() -> None:
    """Prints a row of Markdown for each of the settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signal", type=float, default=0.3, help="1: as in the comparison, 0: nothing (default 0.3)")
    parser.add_argument("--graphs", type=int, default=3, help="(default 3)")
    parser.add_argument("--seeds", type=int, default=10, help="of each (default 10)")
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write the first graph's files there, and train nothing"
    )
    options = parser.parse_args()
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        write_rdf(molecules(0, options.signal), options.write)
        return
    numbers = range(options.graphs)
    print("| settings | " + " | ".join(f"graph {number}" for number in numbers) + " |")
    print("| --- |" + " --- |" * options.graphs)
    for words, own in SETTINGS.items():
        print(f"| {words} |", end="", flush=True)
        for number in numbers:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "data").mkdir()
                write_rdf(molecules(number, options.signal), folder / "data")
                print(f" {score(folder, options.seeds, own):.1f} |", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
