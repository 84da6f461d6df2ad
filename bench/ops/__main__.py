"""Every implementation of the aggregation ops and of sparse_matmul, beside DGL, PyG and an upper bound.

`python -m bench.ops` (`--quick`, `--only NAME`): forward and forward + backward of 64 floats a vertex (8 heads x 8 for
attention), in rounds in which all implementations and peers take turns. Peers run in a process of their own with the
interpreter of the peers' environment and are left out, with a message, where there is none. Writes the JSON, and from
it the table and the plot of docs/performance.md (`--report-only` writes those again).
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

import jax

from bench.comparison.environment import peers_python
from bench.ops.bound import rates
from bench.ops.cases import cases
from bench.ops.peers import Peers
from bench.ops.report import write_report
from bench.ops.rows import aggregation_rows, feature_rows, named, order_rows, scatter_watch
from bench.record import DATA_ROOT, RESULTS, ROOT, commit, store
from jhgnn import native
from jhgnn.runtime.huge_pages import restart_on_huge_pages
from jhgnn.runtime.step_memory import keep_step_memory


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds after one to warm up")
    parser.add_argument("--quick", action="store_true", help="3 rounds, and no case of more than 3 million edges")
    parser.add_argument("--budget-s", type=float, default=10.0, help="a row ends after 3 rounds when it took this long")
    parser.add_argument("--only", action="append", help="cases whose name has this in it; may be given again")
    parser.add_argument("--peers-python", type=Path, default=peers_python())
    parser.add_argument("--output", type=Path, default=RESULTS / "ops-cpu.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of performance.md")
    parser.add_argument("--report-only", action="store_true", help="only write the table and the plot from the JSON")
    options = parser.parse_args()
    if options.report_only:
        write_report(options.output, options.docs)
        return
    options.rounds = 3 if options.quick else options.rounds
    threads = len(os.sched_getaffinity(0))
    peers = Peers(options.peers_python, threads) if options.peers_python.exists() else None
    if peers is None:
        print(f"no peers' environment at {options.peers_python}: DGL and PyG are left out", file=sys.stderr)
    measured = rates()
    load = os.getloadavg()[0]
    rows: list[dict[str, object]] = []
    for name, build in cases(DATA_ROOT):
        if not named(options, name):
            continue
        graphs = build()
        if options.quick and sum(graph.num_edges for graph in graphs) > 3_000_000:
            continue
        rows += aggregation_rows(name, graphs, peers, options, measured)
    if DATA_ROOT.is_dir():
        rows += feature_rows(DATA_ROOT, options)
    if named(options, "few_segments"):
        rows += scatter_watch(options)
    if native.available():
        rows += order_rows(options)
    versions = {"python": platform.python_version(), "jax": jax.__version__}
    if peers is not None:
        versions |= peers.versions
        peers.close()
    kernels = native.instruction_set() if native.available() else "no native kernels"
    record = {
        "study": "ops",
        "machine": f"{platform.machine()}, {threads} cores, {kernels}",
        "commit": commit(),
        "load_average_at_start": round(load, 2),
        "versions": versions,
        "gib_per_s": round(measured["bytes_per_s"] / 2**30, 1),
        "gflop_per_s": round(measured["operations_per_s"] / 1e9, 1),
        "rows": _merged(options.output, rows) if options.only else rows,
    }
    store(options.output, record)
    write_report(options.output, options.docs)


def _merged(path: Path, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of an earlier run with those measured now in their places, so that `--only` keeps the others."""
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    key = lambda row: (row["case"], row["op"], row["pass"])  # noqa: E731
    now = {key(row): row for row in rows}
    kept = [now.pop(key(row), row) for row in earlier]
    return kept + list(now.values())


if __name__ == "__main__":
    restart_on_huge_pages()
    keep_step_memory()  # as our commands do; the peers' process keeps its own
    main()
