"""Semantic graph build against `dgl.metapath_reachable_graph` on the nine metapaths of the paper's Table 3.

`python -m bench.semantic_graph_build`: both read the same relations, in interleaved rounds; ours times
`build_metapath`, from the heterograph to both directions' CSR. DGL runs in a process of its own with the interpreter of
the peers' environment, and is left out, with a message, where there is none.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.comparison.environment import peers_python
from bench.record import DATA_ROOT, RESULTS, commit, store
from jhgnn.data import load
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph_build import build_metapath, estimate_num_edges

REPEATS = 3
"""Builds in a row in each round, the quickest of which counts: the other process has just had the caches."""

TABLE_3 = {
    "acm": {"PAP": 29_436, "PSP": 2_200_581, "PAPSP": 3_666_289},
    "imdb": {"MDM": 17_446, "MAM": 85_358, "MAMDM": 338_517},
    "dblp": {"APA": 11_113, "APVPA": 5_000_495, "APTPA": 7_043_571},
}

# Reads relations as .npy and, for each line "metapath relation ..." on stdin, prints [edges, seconds] as JSON.
DGL_WORKER = """
import json, sys, time
import dgl, numpy as np, torch
folder = sys.argv[1]
listing = json.load(open(f"{folder}/graph.json"))
edges = {}
for number, triple in enumerate(listing["relations"]):
    pairs = np.load(f"{folder}/{number}.npy", allow_pickle=False)
    edges[tuple(triple)] = torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])
graph = dgl.heterograph(edges, listing["num_nodes"])
print(json.dumps({"dgl": dgl.__version__, "torch": torch.__version__}), flush=True)
for line in sys.stdin:
    path = [tuple(triple) for triple in json.loads(line)]
    seconds = []
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        found = dgl.metapath_reachable_graph(graph, path)
        seconds.append(time.perf_counter() - start)
    print(json.dumps([found.num_edges(), min(seconds)]), flush=True)
"""


def read_graphs(data_root: Path) -> dict[str, HeteroGraph]:
    """The three heterographs of Table 3."""
    return {
        "acm": load("arrays", data_root / "acm_gtn"),
        "imdb": load("magnn", data_root / "magnn_imdb"),
        "dblp": load("magnn", data_root / "magnn_dblp"),
    }


class DglWorker:
    """DGL in a process of its own, one graph."""

    def __init__(self, python: Path, graph: HeteroGraph, folder: Path) -> None:
        listing = []
        for number, (relation, edges) in enumerate(graph.edges.items()):
            np.save(folder / f"{number}.npy", np.stack([edges.senders, edges.receivers]).astype(np.int64))
            listing.append((relation.source, relation.name, relation.target))
        (folder / "graph.json").write_text(json.dumps({"relations": listing, "num_nodes": dict(graph.num_nodes)}))
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-c", DGL_WORKER, folder, str(REPEATS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions: dict[str, str] = json.loads(self._answer())

    def time(self, metapath: Metapath) -> tuple[int, float]:
        """(edges, seconds of the quickest of `REPEATS` builds)."""
        assert self._process.stdin is not None
        triples = [(relation.source, relation.name, relation.target) for relation in metapath.relations]
        self._process.stdin.write(json.dumps(triples) + "\n")
        self._process.stdin.flush()
        num_edges, seconds = json.loads(self._answer())
        return num_edges, seconds

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the DGL process ended with status {self._process.wait(60)}")
        return line


def measure(
    graph: HeteroGraph, counts: dict[str, int], worker: DglWorker | None, rounds: int
) -> list[dict[str, object]]:
    """One row a metapath: medians in milliseconds over interleaved rounds, and the ratio of DGL's to ours."""
    rows: list[dict[str, object]] = []
    for text, expected in counts.items():
        metapath = graph.schema.metapath(text)
        ours_s, dgl_s, estimate_s = [], [], []
        for _ in range(rounds + 1):  # the first one warms up
            repeats = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                built = build_metapath(graph, metapath)
                repeats.append(time.perf_counter() - start)
            ours_s.append(min(repeats))
            assert built.num_edges == expected, (text, built.num_edges)
            start = time.perf_counter()
            estimate_num_edges(graph, metapath)
            estimate_s.append(time.perf_counter() - start)
            if worker is not None:
                num_edges, seconds = worker.time(metapath)
                assert num_edges == expected, (text, num_edges)
                dgl_s.append(seconds)
        row: dict[str, object] = {"graph": graph.name, "metapath": text, "num_edges": expected}
        row["ours_ms"] = round(1e3 * statistics.median(ours_s[1:]), 3)
        row["ours_ms_spread"] = [round(1e3 * bound, 3) for bound in (min(ours_s[1:]), max(ours_s[1:]))]
        row["estimate_ms"] = round(1e3 * statistics.median(estimate_s[1:]), 3)
        if dgl_s:
            row["dgl_ms"] = round(1e3 * statistics.median(dgl_s[1:]), 3)
            row["dgl_ms_spread"] = [round(1e3 * bound, 3) for bound in (min(dgl_s[1:]), max(dgl_s[1:]))]
            ratios = [dgl / ours for dgl, ours in zip(dgl_s[1:], ours_s[1:], strict=True)]
            row["dgl_over_ours"] = round(statistics.median(ratios), 2)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.semantic_graph_build", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds after one to warm up")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="folder of acm_gtn, magnn_imdb, magnn_dblp")
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=peers_python(),
        help="interpreter of the environment that has DGL",
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "semantic_graph_build.json", help="JSON to write")
    options = parser.parse_args()
    if not options.data_root.is_dir():
        sys.exit(f"error: no real data at {options.data_root}; set --data-root or JHGNN_DATA_ROOT")
    with_dgl = options.peers_python.exists()
    if not with_dgl:
        print(f"no peers' environment at {options.peers_python}: DGL is left out", file=sys.stderr)
    load_average = round(os.getloadavg()[0], 2)  # DGL's threads suffer more than ours where cores are shared
    rows: list[dict[str, object]] = []
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name, graph in read_graphs(options.data_root).items():
        with tempfile.TemporaryDirectory() as folder:
            worker = DglWorker(options.peers_python, graph, Path(folder)) if with_dgl else None
            rows += measure(graph, TABLE_3[name], worker, options.rounds)
            if worker is not None:
                versions |= worker.versions
                worker.close()
    result = {
        "study": "semantic_graph_build",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average_at_start": load_average,
        "commit": commit(),
        "versions": versions,
        "rounds": options.rounds,
        "repeats_a_round": REPEATS,
        "rows": rows,
    }
    store(options.output, result)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
