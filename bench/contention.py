"""Samplers that share the CPU, as those of several devices do: Fig. 13 of the characterization paper with our sampler.

One global batch of the synthetic MAG is cut into equal shares. Each is sampled by a process of its own, all at once,
which is how DGL and PyG feed several GPUs; or all of them by one process whose threads are shared, which is how one
process here feeds its devices. Times are of one share, from the start it waits for to padded NumPy arrays; context
switches are those of the sampling process, per batch.

    python -m bench.contention
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import RESULTS, commit, store
from jhgnn.data import load_graph, save_graph
from jhgnn.data.synthetic import generate
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.sampling.capacities import presampled
from jhgnn.sampling.epoch import EpochBatches
from jhgnn.sampling.host import HostSampler
from jhgnn.sampling.plan import fan_out_plan

SHARES = (1, 2, 4, 8)
FAN_OUT = [25, 20]
THREADS = 2
PAPER = {1: 1.0, 2: 1.29, 4: 6.49}
"""Time of a share over that on one GPU, MAG (section 5.2.2)."""


def measure(
    graph: HeteroGraph, num_shares: int, own: range, batch_size: int, rounds: int, barrier: Any
) -> dict[str, Any]:
    """Samples shares `own` of each batch together, after the others are ready; figures by batch."""
    assert graph.target is not None
    plan = fan_out_plan(graph, FAN_OUT, len(FAN_OUT))
    sampler = HostSampler(graph, plan, THREADS)
    batches = EpochBatches(graph.splits["train"], batch_size, 0)
    order = batches.order(0)
    cut = [batches.batch(order, step).reshape(num_shares, -1) for step in range(rounds + 2)]
    buckets = presampled(sampler, 0, [{graph.target: share} for share in cut[0][:4]], quantiles=(1.0,))
    ms, edges, before = [], [], (0, 0)
    for step, shares in enumerate(cut):
        seeds = [{graph.target: shares[number]} for number in own]
        if barrier is not None:
            barrier.wait()
        if step == 2:  # after warming up
            before = switches()
        start = time.perf_counter()
        blocks, _ = sampler.sample_shards(seeds, 0, step, buckets)
        ms.append(1e3 * (time.perf_counter() - start))
        edges.append(sum(int(t.num_neighbors.sum()) for hop in blocks.hops for t in hop.values()) / len(own))
    after = switches()
    return {
        "ms": statistics.median(ms[2:]),
        "edges_per_share": statistics.fmean(edges[2:]),
        "voluntary_switches": (after[0] - before[0]) / rounds,
        "involuntary_switches": (after[1] - before[1]) / rounds,
    }


def switches() -> tuple[int, int]:
    """Context switches of this process so far: those it waited for, and those it was made to take."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw, used.ru_nivcsw


def work(folder: str, num_shares: int, number: int, batch_size: int, rounds: int, barrier: Any, results: Any) -> None:
    """One sampling process."""
    graph = load_graph(folder, check_values=False)
    results.put(measure(graph, num_shares, range(number, number + 1), batch_size, rounds, barrier))


def in_processes(folder: str, num_shares: int, batch_size: int, rounds: int) -> dict[str, Any]:
    """Means over as many processes as there are shares."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(num_shares), context.Queue()
    workers = [
        context.Process(target=work, args=(folder, num_shares, number, batch_size, rounds, barrier, results))
        for number in range(num_shares)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    return {name: statistics.fmean(each[name] for each in found) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.contention", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the synthetic MAG")
    parser.add_argument("--batch-size", type=int, default=1024, help="of the global batch")
    parser.add_argument("--rounds", type=int, default=30, help="batches after two to warm up")
    parser.add_argument("--output", type=Path, default=RESULTS / "contention.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        graph = generate("mag", scale=options.scale)
        folder = str(save_graph(graph, Path(temporary) / "mag"))
        for num_shares in SHARES:
            row: dict[str, Any] = {"shares": num_shares, "paper_slowdown": PAPER.get(num_shares)}
            row["processes"] = in_processes(folder, num_shares, options.batch_size, options.rounds)
            row["one_process"] = measure(graph, num_shares, range(num_shares), options.batch_size, options.rounds, None)
            first = rows[0]["processes"]["ms"] if rows else row["processes"]["ms"]
            row["slowdown_processes"] = row["processes"]["ms"] / first
            row["slowdown_one_process"] = row["one_process"]["ms"] / (rows[0] if rows else row)["one_process"]["ms"]
            rows.append(row)
            print(json.dumps(row), flush=True)
    result = {
        "study": "contention",
        "graph": {"name": "synthetic mag", "scale": options.scale},
        "batch_size": options.batch_size,
        "fan_out": FAN_OUT,
        "threads_a_process": THREADS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": os.getloadavg()[0],
        "commit": commit(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "rows": rows,
    }
    store(options.output, result)


if __name__ == "__main__":
    main()
