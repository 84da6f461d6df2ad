"""Host sampling against DGL's NeighborSampler and PyG's NeighborLoader on the synthetic MAG, in one run.

`python -m bench.sampling`: ms per batch and sampled edges per second by fan-out, batch size and threads, in interleaved
rounds over the same seeds. Ours times everything up to padded NumPy arrays, deduplication included; the peers run in
processes of their own with the interpreter of the peers' environment, and are left out, with a message, where there is
none. PyG needs pyg-lib or torch-sparse there.
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
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from bench.comparison.environment import peers_python
from bench.record import RESULTS, ROOT, commit, store
from jhgnn.data.synthetic import generate
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.capacities import Buckets, padding_waste, presampled
from jhgnn.sampling.device import device_edges, sample_on_device
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import SamplingPlan, fan_out_plan, walk_plan

CASES: list[tuple[list[int], int, int]] = [  # fan-out, batch size, threads
    ([25, 20], 1024, 2),
    ([25, 20], 1024, 1),
    ([10, 10], 1024, 2),
    ([25, 20], 256, 2),
    ([25, 20], 4096, 2),
]
METAPATHS = ("paper,author,paper", "paper,field_of_study,paper")
NUM_WALKS, NUM_NEIGHBORS = 20, 20
Result = dict[str, list[float]]
Runner = Callable[[list[np.ndarray]], Result]


class Peers:
    """DGL and PyG in a process of their own, with one number of threads."""

    def __init__(self, python: Path, folder: Path, threads: int) -> None:
        environment = dict(os.environ) | {
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # on a busy machine spinning threads slow DGL down manyfold
            "DGLBACKEND": "pytorch",
        }
        environment["PYTHONPATH"] = environment.get("JHGNN_PEERS_PYTHONPATH", "")
        self._process = subprocess.Popen(
            [python, ROOT / "bench" / "sampling_peers.py", folder, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.versions: dict[str, object] = self._answer()

    def run(self, request: dict[str, object], batches: list[np.ndarray]) -> Result:
        assert self._process.stdin is not None
        seeds = [batch.tolist() for batch in batches]
        self._process.stdin.write(json.dumps(request | {"seeds": seeds}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the peers' process ended with status {self._process.wait(60)}")
        return json.loads(line)


def save_graph(graph: HeteroGraph, folder: Path) -> None:
    for number, edges in enumerate(graph.edges.values()):
        np.save(folder / f"{number}.indptr.npy", edges.indptr)
        np.save(folder / f"{number}.senders.npy", edges.senders)
    triples = [(relation.source, relation.name, relation.target) for relation in graph.edges]
    listing = {"relations": triples, "num_nodes": dict(graph.num_nodes), "seed_type": graph.target}
    (folder / "graph.json").write_text(json.dumps(listing))


def host_runner(graph: HeteroGraph, plan: SamplingPlan, threads: int, buckets: Buckets) -> Runner:
    sampler = HostSampler(graph, plan, threads)

    def run(batches: list[np.ndarray]) -> Result:
        found: Result = {"ms": [], "edges": [], "inputs": []}
        for step, batch in enumerate(batches):
            start = time.perf_counter()
            blocks, _ = sampler.sample({graph.target or "": batch}, 0, step, buckets)
            found["ms"].append(1e3 * (time.perf_counter() - start))
            found["edges"].append(sum(int(t.num_neighbors.sum()) for hop in blocks.hops for t in hop.values()))
            found["inputs"].append(int(blocks.added.sum()))
        return found

    return run


def device_runner(graph: HeteroGraph, plan: SamplingPlan, buckets: Buckets) -> Runner:
    """The sampler of a compiled step, on JAX's default device."""
    capacities = buckets.capacities[0]
    compiled = jax.jit(sample_on_device, static_argnums=(0, 1))
    edges = device_edges(graph, plan)

    def run(batches: list[np.ndarray]) -> Result:
        found: Result = {"ms": [], "edges": [], "inputs": []}
        for step, batch in enumerate(batches):
            start = time.perf_counter()
            seeds = {graph.target or "": batch}
            blocks = compiled(plan, capacities, edges, seeds, np.uint32(0), np.uint32(step))
            jax.block_until_ready(blocks)
            found["ms"].append(1e3 * (time.perf_counter() - start))
            found["edges"].append(sum(int(t.num_neighbors.sum()) for hop in blocks.hops for t in hop.values()))
            found["inputs"].append(sum(int((ids >= 0).sum()) for ids in blocks.nodes.values()))
        return found

    return run


def measure(runners: dict[str, Runner], batches: list[np.ndarray], rounds: int) -> dict[str, dict[str, object]]:
    """Medians over the batches of all rounds but the first, which warms up; the runners take turns."""
    taken: dict[str, list[Result]] = {name: [] for name in runners}
    for _ in range(rounds + 1):
        for name, run in runners.items():
            taken[name].append(run(batches))
    rows: dict[str, dict[str, object]] = {}
    for name, results in taken.items():
        # The first batch of a round finds the caches as the runner before left them, and PyG's workers starting.
        ms = sorted(value for result in results[1:] for value in result["ms"][1:])
        total_s = sum(sum(result["ms"]) for result in results[1:]) / 1e3
        edges = sum(sum(result["edges"]) for result in results[1:])
        rows[name] = {
            "ms": round(statistics.median(ms), 2),
            "mean_ms": round(1e3 * total_s / (len(batches) * rounds), 2),
            "ms_least": round(ms[0], 2),
            "ms_quartiles": [round(ms[len(ms) // 4], 2), round(ms[3 * len(ms) // 4], 2)],
            "million_edges_per_s": round(edges / total_s / 1e6, 1),
            "edges_per_batch": round(edges / len(batches) / rounds),
            "inputs_per_batch": round(statistics.mean(results[-1]["inputs"])),
        }
    return rows


def compare(rows: dict[str, dict[str, object]]) -> dict[str, object]:
    """The quickest peer's time over ours: by means, and DGL's by the batch that the machine disturbed least.

    Means, since PyG's worker processes deliver batches in bursts, which make the least of theirs mean nothing. A peer
    that draws less than nine tenths of our edges is not compared: DGL 1.1.3 with int32 ids in its fused path does so.
    """
    enough = 0.9 * float(str(rows["ours"]["edges_per_batch"]))
    peers = {name: row for name, row in rows.items() if float(str(row["edges_per_batch"])) >= enough}
    ratios: dict[str, object] = {}
    for key, prefixes in (("mean_ms", ("dgl", "pyg")), ("ms_least", ("dgl",))):
        times = {name: float(str(row[key])) for name, row in peers.items() if name.startswith(prefixes)}
        best = min(times, key=lambda name: times[name], default=None)
        ratios[f"best_peer_by_{key}"] = best
        ratios[f"best_peer_over_ours_{key}"] = best and round(times[best] / float(str(rows["ours"][key])), 2)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sampling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds after one to warm up")
    parser.add_argument("--batches", type=int, default=10, help="batches a round")
    parser.add_argument("--scale", type=float, default=1.0, help="of the synthetic MAG")
    parser.add_argument("--peers-python", type=Path, default=peers_python())
    parser.add_argument("--output", type=Path, default=RESULTS / "sampling.json")
    options = parser.parse_args()
    graph = generate("mag", scale=options.scale)
    target = graph.target or ""
    rows = []
    versions: dict[str, object] = {"python": platform.python_version(), "jax": jax.__version__}
    with tempfile.TemporaryDirectory() as name:
        folder, peers = Path(name), dict[int, Peers]()
        if options.peers_python.exists():
            save_graph(graph, folder)
        else:
            print(f"no peers' environment at {options.peers_python}: DGL and PyG are left out", file=sys.stderr)

        def peers_with(threads: int) -> Peers | None:
            if not options.peers_python.exists():
                return None
            if threads not in peers:
                for other in peers.values():  # one at a time holds the graph
                    other.close()
                peers.clear()
                peers[threads] = Peers(options.peers_python, folder, threads)
                versions.update(peers[threads].versions)
            return peers[threads]

        for index, (fan_out, batch_size, threads) in enumerate(CASES):
            plan = fan_out_plan(graph, fan_out, len(fan_out))
            epoch = EpochBatches(graph.splits["train"], batch_size, seed=0)
            order = epoch.order(0)
            batches = [epoch.batch(order, step) for step in range(options.batches)]
            sampler = HostSampler(graph, plan, 1)
            buckets = presampled(sampler, 1, [{target: batch} for batch in batches])
            blocks, _ = sampler.sample({target: batches[0]}, 0, 0, buckets)
            runners: dict[str, Runner] = {"ours": host_runner(graph, plan, threads, buckets)}
            if index == 0:
                runners["ours_device"] = device_runner(graph, plan, buckets)
            peer = peers_with(threads)
            if peer is not None:
                requests: dict[str, dict[str, object]] = {
                    "dgl": {"sampler": "dgl", "width": "int64", "fused": True},
                    "dgl_unfused": {"sampler": "dgl", "width": "int64", "fused": False},
                    "dgl_int32": {"sampler": "dgl", "width": "int32", "fused": True},
                    "dgl_int32_unfused": {"sampler": "dgl", "width": "int32", "fused": False},
                }
                if versions["pyg_lib"] or versions["torch_sparse"]:
                    requests["pyg"] = {"sampler": "pyg"}
                for peer_name, request in requests.items():
                    full = request | {"fan_out": fan_out}
                    runners[peer_name] = lambda batches, peer=peer, full=full: peer.run(full, batches)  # type: ignore[misc]
            case: dict[str, object] = {"fan_out": fan_out, "batch_size": batch_size, "threads": threads}
            results = measure(runners, batches, options.rounds)
            row = case | {"padding_waste": padding_waste(blocks)} | compare(results) | results
            print(json.dumps(row), flush=True)
            rows.append(row)

        plan = walk_plan(graph, [graph.schema.metapath(text) for text in METAPATHS], NUM_WALKS, NUM_NEIGHBORS)
        epoch = EpochBatches(graph.splits["train"], 1024, seed=0)
        order = epoch.order(0)
        batches = [epoch.batch(order, step) for step in range(options.batches)]
        buckets = presampled(HostSampler(graph, plan, 1), 1, [{target: batch} for batch in batches])
        runners = {"ours": host_runner(graph, plan, 2, buckets)}
        peer = peers_with(2)
        if peer is not None:
            metapaths = [
                [(r.target, r.reversed().name, r.source) for r in reversed(graph.schema.metapath(text).relations)]
                for text in METAPATHS
            ]
            walk: dict[str, object] = {"sampler": "dgl_walks", "metapaths": metapaths}
            walk |= {"num_walks": NUM_WALKS, "num_neighbors": NUM_NEIGHBORS}
            runners["dgl_walks"] = lambda batches: peer.run(walk, batches)
        results = measure(runners, batches, options.rounds)
        case = {"metapaths": list(METAPATHS), "num_walks": NUM_WALKS, "num_neighbors": NUM_NEIGHBORS}
        row = case | {"batch_size": 1024, "threads": 2} | compare(results) | results
        print(json.dumps(row), flush=True)
        rows.append(row)
        for own in peers.values():
            own.close()
    result = {
        "study": "sampling",
        "graph": {"name": "synthetic mag", "scale": options.scale, "num_edges": graph.num_edges},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        "versions": versions,
        "rounds": options.rounds,
        "batches_a_round": options.batches,
        "rows": rows,
    }
    store(options.output, result)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
