"""DGL and PyG at the same work, with and without their own recomputation, each in a process of its own."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.comparison.cases import export, settings
from bench.comparison.environment import missing, peers_python
from bench.comparison.measure import DEFAULT_VARIANTS, PEERS, QUICKER_VARIANTS
from bench.comparison.protocol import Worker, WorkerError
from bench.recompute_study.rounds import take_rounds
from bench.record import ROOT
from jhgnn.config import Config
from jhgnn.graph.hetero_graph import HeteroGraph

LIMIT_S = 600.0
"""Of one answer."""

UNITS = ("none", "layer", "stage")
"""That a peer's model recomputes, as `bench/peers/recompute.py` has them."""

MEMORY_STEPS = 2
Row = dict[str, Any]


def measure_peers(graph: HeteroGraph, config: Config, dataset: str, threads: int, rounds_s: float) -> list[Row]:
    """A row for each peer, way of writing the model and unit of recomputation; or why there is none.

    `before_bytes` is resident before the first step, graph and model included, and `steps_peak_bytes` the high-water
    mark after two; steps are then taken in turns.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_workers:
        exported = str(export(graph, config, Path(folder) / "graph"))
        told = json.loads(json.dumps(settings(graph, config)))
        steps: dict[str, Callable[[], float]] = {}
        for peer in PEERS:
            why = missing(peer)
            if why:
                rows.append({"implementation": peer, "refused": why})
                continue
            for variant, unit in ways(peer, config, dataset):
                row: Row = {"implementation": peer, "variant": variant, "recompute": unit}
                rows.append(row)
                log = Path(folder) / f"{peer}-{len(rows)}.log"
                try:
                    worker = _open(peer, log, threads)
                    open_workers.callback(worker.close)
                    ask = {"framework": peer, "folder": exported, "threads": threads}
                    worker.ask("open", timeout_s=LIMIT_S, settings=told | {"recompute": unit}, **ask)
                    step = _begin(worker, variant, config)
                    row["before_bytes"] = worker.ask("reset_memory", timeout_s=30)["before_bytes"]
                    for _ in range(MEMORY_STEPS):
                        step()
                    row["steps_peak_bytes"] = worker.ask("memory", timeout_s=30)["process_peak_bytes"]
                    steps[str(len(rows) - 1)] = step
                except WorkerError as error:
                    row["refused"] = str(error)

        def keep(times: Any) -> None:
            for number, taken in times.items():
                rows[int(number)]["steps_s"] = taken

        try:
            take_rounds(steps, rounds_s, keep)
        except WorkerError as error:
            for number in steps:
                rows[int(number)].setdefault("refused", str(error))
    return rows


def ways(peer: str, config: Config, dataset: str) -> Iterator[tuple[str, str]]:
    """Ways of writing the model in a peer, and what of it recomputes.

    The quickest way that has layers of its own to recompute. PyG's `HANConv` is one module, of which nothing smaller
    can recompute; so beside it stands the same of `GATConv`.
    """
    if config.sampling.batch_size:
        for unit in UNITS[:2] if (peer, config.model.name) == ("pyg", "han") else UNITS:
            yield "in turn", unit
        return
    variant = DEFAULT_VARIANTS[peer, config.model.name]
    quicker = QUICKER_VARIANTS.get((peer, config.model.name, dataset), variant)
    variant = quicker if quicker.startswith(variant.partition(",")[0]) else variant
    one_module = variant.startswith("HANConv")
    for unit in UNITS[:2] if one_module else UNITS:
        yield variant, unit
    if one_module:
        for unit in UNITS:
            yield "GATConv, EdgeIndex", unit


def _open(peer: str, log: Path, threads: int) -> Worker:
    environment = {"OMP_NUM_THREADS": str(threads), "DGLBACKEND": "pytorch"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("JHGNN_PEERS_PYTHONPATH", "")]))
    return Worker([peers_python(), "-W", "ignore", "-m", "bench.peers.worker"], ROOT, environment, log)


def _begin(worker: Worker, variant: str, config: Config) -> Callable[[], float]:
    """Builds the model; takes a step and says its seconds, without the wait for a batch."""
    if config.sampling.batch_size:
        worker.ask("build_minibatches", timeout_s=LIMIT_S, seed=0)
        worker.ask("load_batches", timeout_s=LIMIT_S, variant=variant)

        def batch() -> float:
            (taken,) = worker.ask("batches", timeout_s=LIMIT_S, count=1)["batches"]
            return float(taken["batch_s"] - taken["wait_s"])

        return batch
    worker.ask("build", timeout_s=LIMIT_S, variant=variant, seed=0)
    return lambda: float(worker.ask("epochs", timeout_s=LIMIT_S, count=1)["epochs"][0]["epoch_s"])
