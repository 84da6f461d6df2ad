"""DGL and PyG at the same work: their default variants on the recipe's own graph, each in a process of its own."""

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.comparison.cases import export, settings
from bench.comparison.environment import missing, peers_python
from bench.comparison.measure import DEFAULT_VARIANTS, PEERS
from bench.comparison.protocol import Worker, WorkerError
from bench.record import ROOT
from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph

LIMIT_S = 240.0


def measure_peers(graph: HeteroGraph, config: Config, threads: int, steps: int) -> list[dict[str, Any]]:
    """A cell a peer: seconds of steps after the first, and high-water marks; or why there is none.

    `before_bytes` is the mark before graph and model are built, so that the rest is what training needs.
    """
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        exported = export(graph, config, Path(folder) / "graph")
        told = json.loads(json.dumps(settings(graph, config)))
        for peer in PEERS:
            cell: dict[str, Any] = {"implementation": peer}
            cells.append(cell)
            why = missing(peer)
            if why:
                cell["refused"] = why
                continue
            environment = {"OMP_NUM_THREADS": str(threads), "DGLBACKEND": "pytorch"}
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(ROOT), os.environ.get("JHGNN_PEERS_PYTHONPATH", "")])
            )
            command = [str(peers_python()), "-W", "ignore", "-m", "bench.peers.worker"]
            worker = Worker(command, ROOT, environment, Path(folder) / f"{peer}.log")
            try:
                cell |= _steps(worker, peer, config, str(exported), told, threads, steps)
            except WorkerError as error:
                cell["refused"] = str(error)
            finally:
                worker.close()
    return cells


def _steps(
    worker: Worker, peer: str, config: Config, folder: str, told: dict[str, Any], threads: int, steps: int
) -> dict[str, Any]:
    opened = {"framework": peer, "folder": folder, "settings": told, "threads": threads}
    described = worker.ask("open", timeout_s=LIMIT_S, **opened)
    if config.sampling.batch_size:
        built = worker.ask("build_minibatches", timeout_s=LIMIT_S, seed=0)
        worker.ask("load_batches", timeout_s=LIMIT_S, variant=described["variants"][0])
        answers = worker.ask("batches", timeout_s=LIMIT_S, count=steps + 1)["batches"]
        seconds = [each["batch_s"] - each.get("wait_s", 0.0) for each in answers]
        variant = described["variants"][0]
    else:
        variant = DEFAULT_VARIANTS[peer, config.model.name]
        built = worker.ask("build", timeout_s=LIMIT_S, variant=variant, seed=0)
        seconds = [each["epoch_s"] for each in worker.ask("epochs", timeout_s=LIMIT_S, count=steps + 1)["epochs"]]
    marks = worker.ask("memory", timeout_s=30)
    return {
        "variant": variant,
        "before_bytes": built["peak_before_bytes"],
        "steps_peak_bytes": marks["process_peak_bytes"],
        "process_peak_bytes": marks["process_peak_bytes"],
        "steps_s": seconds[1:],
        "median_s": statistics.median(seconds[1:]),
    }
