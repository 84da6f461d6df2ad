"""Every implementation of the aggregation ops and of sparse_matmul, beside DGL, PyG and an upper bound.

`python -m bench.ops` (`--quick`, `--only NAME`): forward and forward + backward of 64 floats a vertex (8 heads x 8 for
attention), in rounds in which all implementations and peers take turns. Peers run in a process of their own with the
interpreter of the peers' environment and are left out, with a message, where there is none. Writes the JSON, and from
it the table and the plot of docs/performance.md (`--report-only` writes those again).
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.ops_cases import cases
from bench.ops_order import NUM_EDGES, SOURCES, orders
from bench.ops_report import write_report
from bench.semantic_graph_build import DATA_ROOT, read_graphs
from jhgnn import native
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.huge_pages import restart_on_huge_pages
from jhgnn.ops import neighbor_attention, neighbor_mean, sparse_matmul
from jhgnn.step_memory import keep_step_memory, kept_by_environment

ROOT = Path(__file__).parents[1]
HEADS, WIDTH = 8, 8
LARGEST_PER_EDGE_BYTES = 600 * 2**20
"""Implementations that hold [num_edges, 64] floats are left out above this: they keep several such arrays."""
LARGEST_DENSE_PAIRS = 2**28


class Peers:
    """DGL and PyG in a process of their own."""

    def __init__(self, python: Path, threads: int) -> None:
        environment = dict(os.environ) | {"OMP_NUM_THREADS": str(threads), "DGLBACKEND": "pytorch"}
        environment |= kept_by_environment(environment)
        self._process = subprocess.Popen(
            [python, ROOT / "bench" / "ops_peers.py", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.versions = self._answer()

    def load(self, graph: SemanticGraph, folder: Path) -> None:
        receivers = np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))
        np.save(folder / "src.npy", graph.incoming.indices)
        np.save(folder / "dst.npy", receivers)
        (folder / "sizes.json").write_text(json.dumps([graph.num_sources, graph.num_targets]))
        self.ask(load=str(folder))

    def ask(self, **request: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the peers' process ended with status {self._process.wait(60)}")
        return json.loads(line)


@dataclasses.dataclass
class Contender:
    """One implementation or peer on one case: `run` gives the seconds of one call."""

    run: Callable[[], float]
    facts: dict[str, object]


def compiled(function: Callable[..., Any], *arguments: Any) -> Contender:
    """Our implementations: timed with their arguments on the device, compile time and XLA's memory as facts."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(*arguments).compile()
    compile_s = time.perf_counter() - start
    memory = executable.memory_analysis()
    facts: dict[str, object] = {"compile_s": round(compile_s, 3)}
    if memory is not None:
        facts["peak_mib"] = round((memory.temp_size_in_bytes + memory.output_size_in_bytes) / 2**20, 1)

    def run() -> float:
        start = time.perf_counter()
        jax.block_until_ready(executable(*arguments))
        return time.perf_counter() - start

    return Contender(run, facts)


def peer(peers: Peers, name: str, op: str, backward: bool) -> Contender:
    request = {"peer": name, "op": op, "backward": backward}
    peak = peers.ask(**request, peak=True)
    return Contender(lambda: float(peers.ask(**request)), {"peak_mib": round(peak / 2**20, 1)})


def measure(contenders: dict[str, Contender], rounds: int, budget_s: float) -> dict[str, dict[str, object]]:
    """Medians in ms over interleaved rounds after one that warms up; ratios to native are those of the same round."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    started = time.perf_counter()
    for index in range(rounds + 1):
        for name, contender in contenders.items():
            seconds = contender.run()
            if index:
                taken[name].append(seconds)
        if index >= 3 and time.perf_counter() - started > budget_s:
            break
    rows: dict[str, dict[str, object]] = {}
    for name, times in taken.items():
        rows[name] = {
            "ms": round(1e3 * statistics.median(times), 3),
            "ms_spread": [round(1e3 * bound, 3) for bound in (min(times), max(times))],
            "rounds": len(times),
        } | contenders[name].facts
        if "native" in taken:
            ratios = [other / own for other, own in zip(times, taken["native"], strict=True)]
            rows[name]["over_native"] = round(statistics.median(ratios), 2)
    return rows


def rates() -> dict[str, float]:
    """Bytes per second from and to memory, and float32 operations per second, the best of several tries."""
    megabytes = 256
    array = jnp.ones(megabytes * 2**18, jnp.float32)
    add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    total = jax.jit(lambda x: jnp.sum(x.reshape(-1, 1024), axis=0))
    square = jnp.ones((1536, 1536), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    bytes_per_s = operations_per_s = 0.0
    for _ in range(8):
        array, seconds = _timed(add, array)
        bytes_per_s = max(bytes_per_s, 2 * array.nbytes / seconds)
        bytes_per_s = max(bytes_per_s, array.nbytes / _timed(total, array)[1])
        operations_per_s = max(operations_per_s, 2 * 1536**3 / _timed(product, square)[1])
    return {"bytes_per_s": bytes_per_s, "operations_per_s": operations_per_s}


def _timed(function: Callable[..., jax.Array], *arguments: jax.Array) -> tuple[jax.Array, float]:
    start = time.perf_counter()
    out = jax.block_until_ready(function(*arguments))
    return out, time.perf_counter() - start


def last_level_cache_bytes() -> int:
    """Of the first processor; 32 MiB where the system does not say."""
    sizes = [int(path.read_text().strip()[:-1]) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return 1024 * max(sizes, default=32 * 1024)


def bound_ms(graph: SemanticGraph, op: str, backward: bool, measured: dict[str, float]) -> float:
    """Milliseconds that no implementation can beat: bytes over bandwidth or operations over rate, the larger.

    Bytes: edges' indices, and each vertex's 64 floats once where the gathered side fits the last-level cache; where it
    does not, 64 floats an edge (a cache line a vertex can be lucky, but not 7 million random rows).
    """
    row, passes = 4 * HEADS * WIDTH, 2 if backward else 1
    vertices = graph.num_sources + graph.num_targets
    gathered = max(graph.num_sources, graph.num_targets) * row > last_level_cache_bytes()
    rows = graph.num_edges + min(graph.num_targets, graph.num_sources) if gathered else vertices
    moved = passes * (4 * graph.num_edges + row * rows)
    operations = passes * graph.num_edges * HEADS * WIDTH * (2 if op == "neighbor_attention" else 1)
    return 1e3 * max(moved / measured["bytes_per_s"], operations / measured["operations_per_s"])


def aggregation(op: str, graphs: list[SemanticGraph], backward: bool) -> dict[str, Contender]:
    """Our implementations of one op over all graphs of a case."""
    rng = np.random.default_rng(0)
    module: Any = {"neighbor_attention": neighbor_attention, "neighbor_mean": neighbor_mean}[op]
    contenders: dict[str, Contender] = {}
    arrays = []
    for graph in graphs:
        z = jnp.asarray(rng.normal(size=(graph.num_sources, HEADS, WIDTH)), jnp.float32)
        logits = [jnp.asarray(rng.normal(size=(n, HEADS)), jnp.float32) for n in (graph.num_sources, graph.num_targets)]
        cotangent = jnp.asarray(rng.normal(size=(graph.num_targets, HEADS, WIDTH)), jnp.float32)
        arrays.append((z, *logits, cotangent))
    num_edges = sum(graph.num_edges for graph in graphs)
    for name in module.IMPLEMENTATIONS:
        if name == "segment" and num_edges * HEADS * WIDTH * 4 > LARGEST_PER_EDGE_BYTES:
            continue
        if name == "dense" and sum(g.num_sources * g.num_targets for g in graphs) > LARGEST_DENSE_PAIRS:
            continue
        if name == "native" and not native.available():
            continue
        placed = [graph.place(module.VIEWS[name]) for graph in graphs]
        contenders[name] = compiled(_over_graphs(op, name, backward), placed, arrays)
    return contenders


def _over_graphs(op: str, implementation: str, backward: bool) -> Callable[..., Any]:
    def one(graph: SemanticGraph, arrays: tuple[jax.Array, ...]) -> Any:
        z, src, dst, cotangent = arrays
        if op == "neighbor_attention":
            function: Callable[..., jax.Array] = lambda *primals: neighbor_attention.neighbor_attention(  # noqa: E731
                graph, *primals, implementation=implementation
            )
            primals: tuple[jax.Array, ...] = (z, src, dst)
        else:
            function = lambda x: neighbor_mean.neighbor_mean(graph, x, implementation=implementation)  # noqa: E731
            primals, cotangent = (z.reshape(len(z), -1),), cotangent.reshape(len(cotangent), -1)
        if not backward:
            return function(*primals)
        out, vjp = jax.vjp(function, *primals)
        return out, vjp(cotangent)

    return lambda graphs, arrays: [one(*pair) for pair in zip(graphs, arrays, strict=True)]


def aggregation_rows(
    name: str, graphs: list[SemanticGraph], peers: Peers | None, options: argparse.Namespace, measured: dict[str, float]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        if peers is not None and len(graphs) == 1:
            peers.load(graphs[0], Path(folder))
        for op in ("neighbor_attention", "neighbor_mean"):
            for backward in (False, True):
                contenders = aggregation(op, graphs, backward)
                if peers is not None and len(graphs) == 1:
                    contenders["dgl"] = peer(peers, "dgl", op, backward)
                    if graphs[0].num_edges * HEADS * WIDTH * 4 <= LARGEST_PER_EDGE_BYTES:
                        contenders["pyg"] = peer(peers, "pyg", op, backward)
                results = measure(contenders, options.rounds, options.budget_s)
                bound = sum(bound_ms(graph, op, backward, measured) for graph in graphs)
                row: dict[str, object] = {
                    "case": name,
                    "op": op,
                    "pass": "forward + backward" if backward else "forward",
                    "num_edges": sum(graph.num_edges for graph in graphs),
                    "density": round(float(np.mean([graph.density for graph in graphs])), 6),
                    "bound_ms": round(bound, 3),
                    "results": results,
                }
                if "native" in results:
                    row["native_share_of_bound"] = round(bound / float(str(results["native"]["ms"])), 3)
                shown = {key: result["ms"] for key, result in results.items()}
                print(f"{name:12s} {op:18s} {row['pass']:18s} bound {bound:8.2f} ms  {shown}", flush=True)
                rows.append(row)
    return rows


def feature_rows(data_root: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """sparse_matmul of real bag-of-words features, beside the dense product of the same matrix."""
    rows: list[dict[str, object]] = []
    for dataset, graph in read_graphs(data_root).items():
        for node_type, features in graph.features.items():
            if not hasattr(features, "tocsr") or not _named(options, f"{dataset}_{node_type}"):
                continue
            matrix = SparseFeatures.from_scipy(features)
            weight = jnp.asarray(np.random.default_rng(0).normal(size=(matrix.num_columns, 64)), jnp.float32)
            cotangent = jnp.ones((matrix.num_rows, 64), jnp.float32)

            contenders = {
                name: compiled(_sparse_product(name), matrix.place(), weight, cotangent)
                for name in sparse_matmul.IMPLEMENTATIONS
                if name != "native" or native.available()
            }
            if matrix.num_rows * matrix.num_columns <= LARGEST_DENSE_PAIRS:
                dense = jnp.asarray(features.toarray(), jnp.float32)  # type: ignore[union-attr]
                contenders["dense"] = compiled(lambda x, w, g: (x @ w, x.T @ g), dense, weight, cotangent)
            row: dict[str, object] = {
                "case": f"{dataset}_{node_type}",
                "op": "sparse_matmul",
                "pass": "forward + backward",
                "num_edges": matrix.num_values,
                "density": round(matrix.density, 6),
                "results": measure(contenders, options.rounds, options.budget_s),
            }
            print(row["case"], row["op"], {k: r["ms"] for k, r in row["results"].items()}, flush=True)  # type: ignore[attr-defined]
            rows.append(row)
    return rows


def _sparse_product(implementation: str) -> Callable[..., Any]:
    def run(matrix: SparseFeatures, weight: jax.Array, cotangent: jax.Array) -> Any:
        out, vjp = jax.vjp(lambda w: sparse_matmul.sparse_matmul(matrix, w, implementation=implementation), weight)
        return out, vjp(cotangent)

    return run


def scatter_watch(options: argparse.Namespace) -> list[dict[str, object]]:
    """Keeps watch over JAX issues 39959 and 38806: sums into few segments by scatter, and over sorted segments."""
    num_values, num_segments = 200_000, 16
    rng = np.random.default_rng(0)
    ids = jnp.asarray(np.sort(rng.integers(0, num_segments, num_values)), jnp.int32)
    values = jnp.ones((num_values, 8), jnp.float32)
    contenders = {
        "scatter_add": compiled(lambda i, v: jnp.zeros((num_segments, 8)).at[i].add(v), ids, values),
        "sorted_segment_sum": compiled(
            lambda i, v: jax.ops.segment_sum(v, i, num_segments, indices_are_sorted=True), ids, values
        ),
    }
    results = measure(contenders, options.rounds, options.budget_s)
    return [
        {"case": "few_segments", "op": "scatter_watch", "pass": "forward", "num_edges": num_values, "results": results}
    ]


def order_rows(options: argparse.Namespace) -> list[dict[str, object]]:
    """The mean over four semantic graphs, grouped by source type and not."""
    rows: list[dict[str, object]] = []
    for name, num_sources in SOURCES.items():
        if _named(options, name):
            contenders = {order: Contender(run, {}) for order, run in orders(num_sources, "native").items()}
            results = measure(contenders, 3 * options.rounds, options.budget_s)
            print(name, {key: result["ms"] for key, result in results.items()}, flush=True)
            row = {"case": name, "op": "order of semantic graphs", "pass": "forward", "num_edges": 4 * NUM_EDGES}
            rows.append(row | {"results": results})
    return rows


def _named(options: argparse.Namespace, name: str) -> bool:
    return not options.only or any(part in name for part in options.only)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds after one to warm up")
    parser.add_argument("--quick", action="store_true", help="3 rounds, and no case of more than 3 million edges")
    parser.add_argument("--budget-s", type=float, default=10.0, help="a row ends after 3 rounds when it took this long")
    parser.add_argument("--only", action="append", help="cases whose name has this in it; may be given again")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".venv-peers" / "bin" / "python")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "ops-cpu.json")
    parser.add_argument("--report-only", action="store_true", help="only write the table and the plot from the JSON")
    options = parser.parse_args()
    if options.report_only:
        write_report(options.output, ROOT / "docs")
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
        if not _named(options, name):
            continue
        graphs = build()
        if options.quick and sum(graph.num_edges for graph in graphs) > 3_000_000:
            continue
        rows += aggregation_rows(name, graphs, peers, options, measured)
    if DATA_ROOT.is_dir():
        rows += feature_rows(DATA_ROOT, options)
    if _named(options, "few_segments"):
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
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT
        ).stdout.strip(),
        "load_average_at_start": round(load, 2),
        "versions": versions,
        "gib_per_s": round(measured["bytes_per_s"] / 2**30, 1),
        "gflop_per_s": round(measured["operations_per_s"] / 1e9, 1),
        "rows": _merged(options.output, rows) if options.only else rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.output.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.rename(options.output)
    write_report(options.output, ROOT / "docs")


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
