"""Measures one case: variants probed, then every framework in a process of its own, in interleaved rounds."""

import json
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.comparison.cases import (
    FEATURELESS,
    MINIBATCH_CASES,
    TARGET_F1,
    Case,
    export,
    is_real,
    read_dataset,
    recipe,
    settings,
    uses_metapaths,
)
from bench.comparison.environment import peers_python
from bench.comparison.protocol import Worker, WorkerError
from bench.comparison.results import spread
from bench.comparison.rounds import EXTRA_S, Epochs, Round, one_more, quietest, time_round
from bench.record import ROOT
from jhgnn import models
from jhgnn.config.recipe import to_toml
from jhgnn.runtime.huge_pages import wanted_environment
from jhgnn.runtime.step_memory import kept_by_environment
from jhgnn.training.checks import takes_fields

PEERS = ("dgl", "pyg")
COLUMNS = ("jhgnn", *PEERS)
"""At their best; beside them stand columns with an advantage removed."""
DEFAULT_VARIANTS = {
    ("jhgnn", "han"): "auto",
    ("jhgnn", "rgcn"): "auto",
    ("jhgnn", "rgat"): "auto",
    ("dgl", "han"): "GATConv",
    ("dgl", "rgcn"): "HeteroGraphConv(GraphConv)",
    ("dgl", "rgat"): "HeteroGraphConv(GATConv)",
    ("pyg", "han"): "HANConv, EdgeIndex",
    ("pyg", "rgcn"): "HeteroConv(Linear + SimpleConv), sparse adjacency",
    ("pyg", "rgat"): "HeteroConv(GATConv), EdgeIndex",
}
QUICKER_VARIANTS = {
    # 3,066 words a movie: half to a quarter of the time of dense ones
    ("dgl", "han", "imdb"): "GATConv, sparse features",
    ("pyg", "han", "imdb"): "HANConv, EdgeIndex, sparse features",
    ("dgl", "rgcn", "imdb"): "HeteroGraphConv(GraphConv), sparse features",
    ("pyg", "rgcn", "imdb"): "HeteroConv(Linear + SimpleConv), sparse adjacency, sparse features",
    ("dgl", "rgat", "imdb"): "HeteroGraphConv(GATConv), sparse features",
    ("pyg", "rgat", "imdb"): "HeteroConv(GATConv), EdgeIndex, sparse features",
    # 90 relations over one node type: a third to two thirds
    ("dgl", "rgcn", "aifb"): "RelGraphConv",
    ("pyg", "rgcn", "aifb"): "RGCNConv",
    ("dgl", "rgcn", "molecules"): "RelGraphConv",
    ("pyg", "rgcn", "molecules"): "RGCNConv",
    # 4,231 words a paper: a third to a half
    ("dgl", "rgcn", "dblp"): "HeteroGraphConv(GraphConv), sparse features",
    ("pyg", "rgcn", "dblp"): "HeteroConv(Linear + SimpleConv), sparse adjacency, sparse features",
    ("dgl", "rgat", "dblp"): "HeteroGraphConv(GATConv), sparse features",
    ("pyg", "rgat", "dblp"): "HeteroConv(GATConv), EdgeIndex, sparse features",
}
"""Where another than the default was the quickest by far, when all were tried."""
LEAST_EPOCHS, MOST_EPOCHS = 3, 60
ROUND_S, QUICK_ROUND_S = 1.0, 0.5
"""Of one column's epochs in a round, at least one epoch."""
LEAST_BATCHES, MOST_BATCHES, BATCHES_S, WARM_UP_BATCHES = 4, 40, 10.0, 6
COLD_EPOCHS = 100
MEMORY_SHARE = 0.85
"""Of the available memory that the columns timed side by side may take; each keeps what it once needed."""
COLD_LIMIT_S = 60.0
"""Cold starts expected to last longer are not run: the report then gives their parts instead."""


def default_variant(framework: str, case: Case) -> str:
    """What is timed where variants are not tried."""
    return QUICKER_VARIANTS.get((framework, case.model, case.dataset), DEFAULT_VARIANTS[framework, case.model])


class Clock:
    """What is left of the time budget."""

    def __init__(self, budget_s: float) -> None:
        self._end = time.monotonic() + budget_s

    @property
    def left_s(self) -> float:
        return self._end - time.monotonic()

    def limit(self, most_s: float) -> float:
        """A time limit for one request.

        Raises:
            WorkerError: the budget is spent.
        """
        if self.left_s <= 1.0:
            raise WorkerError("time budget spent")
        return min(most_s, self.left_s)


class Bench:
    """One case with its files; cases of one large data set share its graph.

    Peers get our commands' memory settings; `plain` starts them as their users do. `quick`: rounds of half the length,
    none that repeats a disturbed one, no program of our forward pass alone, and processes that start together, whose
    starts are therefore not told.
    """

    def __init__(
        self,
        case: Case,
        folder: Path,
        clock: Clock,
        threads: int,
        *,
        plain: bool = False,
        quick: bool = False,
    ) -> None:
        self.case, self.clock, self.threads = case, clock, threads
        self.plain, self.quick = plain, quick
        shared = case in MINIBATCH_CASES
        sharing = MINIBATCH_CASES if shared else (case,)
        key = zlib.crc32("".join(to_toml(recipe(each)) for each in sharing).encode())  # another recipe, another folder
        name = (case.dataset if shared else case.name) + ("" if is_real(case.dataset) else "-synthetic")
        self.folder = folder / f"{name}-{key:08x}"
        self.log = folder / f"{case.name}.log"
        config, described = recipe(case), self.folder / f"settings-{case.model}.json"
        if not described.exists():
            graph = read_dataset(case.dataset)
            # One graph for all of them: with the metapaths of the one that has some, which the others do not read.
            exported = next((each for each in map(recipe, sharing) if uses_metapaths(each)), config)
            export(graph, exported, self.folder)
            for each in sharing:  # after the graph, so that a folder with settings is whole
                text = json.dumps(settings(graph, recipe(each)))
                (self.folder / f"settings-{each.model}.json").write_text(text, encoding="utf-8")
        self.settings: dict[str, Any] = json.loads(described.read_text(encoding="utf-8"))
        self.recipe = self.folder / f"recipe-{case.model}.toml"
        self.recipe.write_text(to_toml(config), encoding="utf-8")

    def start(self, framework: str) -> tuple[Worker, dict[str, Any]]:
        """A worker that has read the graph, and what it said; `start_s` counts from the command."""
        environment = {"OMP_NUM_THREADS": str(self.threads), "DGLBACKEND": "pytorch"}
        if framework == "jhgnn" or not self.plain:
            environment |= wanted_environment()
        if framework == "jhgnn":
            command = [sys.executable, "-m", "bench.comparison.jhgnn_worker"]
            extra: dict[str, Any] = {"recipe": str(self.recipe)}
        else:
            command = [str(peers_python()), "-W", "ignore", "-m", "bench.peers.worker"]
            if not self.plain:
                environment |= kept_by_environment(dict(os.environ) | environment)
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(ROOT), os.environ.get("JHGNN_PEERS_PYTHONPATH", "")])
            )
            extra = {}
        start = time.perf_counter()
        worker = Worker(command, ROOT, environment, self.log)
        try:
            opened = worker.ask(
                "open",
                timeout_s=self.clock.limit(240),
                framework=framework,
                folder=str(self.folder),
                settings=self.settings,
                threads=self.threads,
                **extra,
            )
        except WorkerError:
            worker.close()
            raise
        return worker, opened | {"start_s": time.perf_counter() - start}

    def probe(self, framework: str) -> dict[str, Any]:
        """Tries every variant of a peer: the quicker of two epochs after the first, or why there is none."""
        worker: Worker | None
        worker, opened = self.start(framework)
        tried: dict[str, Any] = {}
        best = float("inf")
        for variant in opened["variants"]:
            entry: dict[str, Any] = {"features": opened["features"][variant]}
            tried[variant] = entry
            try:
                if worker is None:
                    worker, _ = self.start(framework)
                worker.ask("build", timeout_s=self.clock.limit(300), variant=variant, seed=0)
                # Compiling may take long; an epoch that takes ten times the best one's need not end.
                limit_s = self.clock.limit(max(90.0, 10 * min(best, 60.0)))
                entry["first_epoch_s"] = worker.ask("epochs", timeout_s=limit_s, count=1)["epochs"][0]["epoch_s"]
                count = 1 if entry["first_epoch_s"] > 5.0 else 3
                later = worker.ask("epochs", timeout_s=self.clock.limit(120), count=count)
                entry["epoch_ms"] = 1e3 * min(each["epoch_s"] for each in later["epochs"])
                best = min(best, entry["epoch_ms"] / 1e3)
            except WorkerError as error:
                entry["failed"] = str(error)
                if worker is not None:  # the next variant gets a process of its own
                    worker.close()
                    worker = None
        if worker is not None:
            worker.close()
        return tried

    def interleave(self, columns: Mapping[str, tuple[str, str]], rounds: int) -> dict[str, dict[str, Any]]:
        """Times columns (name -> framework, variant) in interleaved rounds, and reads their memory at the end.

        Of the rounds those count from which the machine's neighbours stole least; `stolen_share` says how much.
        """
        workers: dict[str, Worker] = {}
        cells: dict[str, dict[str, Any]] = {}
        per_round: dict[str, int] = {}
        round_s = QUICK_ROUND_S if self.quick else ROUND_S

        def drop(name: str, error: WorkerError) -> None:
            cells[name] = {"variant": columns[name][1], "missing": str(error)}
            if name in workers:
                workers.pop(name).close()

        def start(name: str) -> dict[str, Any] | WorkerError:
            try:
                workers[name], opened = self.start(columns[name][0])
            except WorkerError as error:
                return error
            return opened

        try:
            with ThreadPoolExecutor(len(columns) if self.quick else 1) as pool:
                started = dict(zip(columns, pool.map(start, columns), strict=True))
            for name, (_, variant) in columns.items():
                opened = started[name]
                if isinstance(opened, WorkerError):
                    drop(name, opened)
                    continue
                worker = workers[name]
                try:
                    built = worker.ask("build", timeout_s=self.clock.limit(300), variant=variant, seed=0)
                    first = worker.ask("epochs", timeout_s=self.clock.limit(300), count=1)["epochs"][0]["epoch_s"]
                    second = worker.ask("epochs", timeout_s=self.clock.limit(120), count=1)["epochs"][0]["epoch_s"]
                    per_round[name] = max(1, min(MOST_EPOCHS // rounds, int(round_s / second)))
                    cells[name] = {"variant": variant, "features": opened["features"][variant]}
                    cells[name] |= {key: opened[key] for key in ("versions", "device")}
                    if not self.quick:
                        cells[name] |= {key: opened[key] for key in ("start_s", "import_s", "read_s")}
                    cells[name] |= built | {"first_epoch_s": first}
                except WorkerError as error:
                    drop(name, error)

            def run_round() -> dict[str, Epochs]:
                epochs: dict[str, Epochs] = {}
                for name in list(workers):
                    count = max(per_round[name], -(-LEAST_EPOCHS // rounds))
                    try:
                        answer = workers[name].ask("epochs", timeout_s=self.clock.limit(180), count=count)
                        epochs[name] = answer["epochs"]
                    except WorkerError as error:
                        drop(name, error)
                return epochs

            done = self._rounds(run_round, rounds)
            kept = quietest(done, rounds)
            stolen_share = statistics.fmean(each.stolen_share for each in kept)
            for name in list(workers):
                try:
                    epochs = [epoch for each in kept for epoch in each.epochs.get(name, [])]
                    cells[name] |= self._summary(workers[name], columns[name][0], epochs)
                    cells[name] |= {"stolen_share": stolen_share, "rounds_run": len(done)}
                except WorkerError as error:
                    drop(name, error)
        finally:
            for worker in workers.values():
                worker.close()
        return cells

    def _rounds(self, run_round: Callable[[], dict[str, Epochs]], wanted: int) -> list[Round]:
        """As many rounds as wanted, fewer where the budget ends, more where the machine was disturbed."""
        done: list[Round] = []
        start_s, planned_s = time.monotonic(), 0.0
        extra_s = 0.0 if self.quick else EXTRA_S
        while one_more(done, wanted, extra_s - (time.monotonic() - start_s - planned_s)):
            if len(done) >= LEAST_EPOCHS and self.clock.left_s < 30:
                break
            done.append(time_round(run_round, self.threads))
            if len(done) <= wanted:
                planned_s = time.monotonic() - start_s
        return done

    def _summary(self, worker: Worker, framework: str, epochs: list[dict[str, float]]) -> dict[str, Any]:
        """Medians, spread, memory and, but for ours in a quick run, the forward share."""
        times = [each["epoch_s"] for each in epochs]
        median_s = statistics.median(times)
        cell = {"epoch_ms": 1e3 * median_s, "spread": spread(times), "epochs_timed": len(times)}
        cell |= worker.ask("memory", timeout_s=30)
        if framework != "jhgnn":
            for part in ("forward", "backward", "update"):
                cell[f"{part}_ms"] = 1e3 * statistics.median(each[f"{part}_s"] for each in epochs)
        elif not self.quick:  # after the memory was read: this compiles a second program
            count = max(3, min(20, int(1.0 / median_s)))
            forward = worker.ask("forward", timeout_s=self.clock.limit(120), count=count)["forward_s"]
            cell["forward_ms"] = 1e3 * statistics.median(forward)
            cell["backward_ms"] = cell["epoch_ms"] - cell["forward_ms"]
        return cell

    def cold(self, framework: str, variant: str, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds from the command to the end of 100 epochs, everything included; or why they were not run."""
        expected = cell["start_s"] + cell["sgb_s"] + cell["first_epoch_s"] + COLD_EPOCHS * cell["epoch_ms"] / 1e3
        if expected > COLD_LIMIT_S:
            return {"cold_not_run": f"expected to last {expected:.0f} s, over the limit of {COLD_LIMIT_S:.0f} s"}
        start = time.perf_counter()
        worker, _ = self.start(framework)
        try:
            worker.ask("build", timeout_s=self.clock.limit(120), variant=variant, seed=0)
            worker.ask("epochs", timeout_s=self.clock.limit(2 * COLD_LIMIT_S), count=COLD_EPOCHS)
            return {"cold_s": time.perf_counter() - start}
        finally:
            worker.close()

    def minibatches(self, framework: str) -> dict[str, Any]:
        """Trains on sampled batches, prepared in turn and ahead: times of a batch, and the share of waiting for it.

        One framework runs at a time: each holds a copy of the graph.
        """
        worker, opened = self.start(framework)
        cell: dict[str, Any] = {key: opened[key] for key in ("start_s", "import_s", "read_s", "versions", "device")}
        cell["modes"] = {}
        try:
            cell |= worker.ask("build_minibatches", timeout_s=self.clock.limit(300), seed=0)
            for variant in opened["variants"]:
                try:
                    cell["modes"][variant] = self._batches(worker, variant)
                except WorkerError as error:
                    cell["modes"][variant] = {"failed": str(error)}
                    break  # the process is gone, or in an unknown state
            else:
                cell |= worker.ask("memory", timeout_s=30)
        finally:
            worker.close()
        done = {name: mode for name, mode in cell["modes"].items() if "batch_ms" in mode}
        if not done:
            raise WorkerError("; ".join(f"{name}: {mode['failed']}" for name, mode in cell["modes"].items()))
        return cell | {"variant": min(done, key=lambda name: done[name]["batch_ms"])}

    def _batches(self, worker: Worker, variant: str) -> dict[str, Any]:
        """Batches until their time is spent; those before them warm up and empty what was prepared meanwhile."""
        worker.ask("load_batches", timeout_s=self.clock.limit(120), variant=variant)
        first = worker.ask("batches", timeout_s=self.clock.limit(180), count=1)["batches"][0]
        second = worker.ask("batches", timeout_s=self.clock.limit(120), count=1)["batches"][0]
        count = max(LEAST_BATCHES, min(MOST_BATCHES, int(BATCHES_S / second["batch_s"])))
        if variant != "in turn":
            warm_up = max(2, min(WARM_UP_BATCHES, count))
            worker.ask("batches", timeout_s=self.clock.limit(180), count=warm_up)
        timed = worker.ask("batches", timeout_s=self.clock.limit(300), count=count)["batches"]
        spent = sum(each["batch_s"] for each in timed)
        return {
            "first_batch_s": first["batch_s"],
            "batch_ms": 1e3 * statistics.median(each["batch_s"] for each in timed),
            "spread": spread([each["batch_s"] for each in timed]),
            "targets_per_s": sum(each["targets"] for each in timed) / spent,
            "wait_share": sum(each["wait_s"] for each in timed) / spent,
            "batches_timed": count,
            "loss": timed[-1]["loss"],
        }

    def _first_weights(self, seed: int) -> dict[str, str]:
        """Files of our initial weights by definition."""
        worker, _ = self.start("jhgnn")
        try:
            answer = worker.ask("first_weights", timeout_s=self.clock.limit(120), folder=str(self.folder), seed=seed)
        finally:
            worker.close()
        return dict(answer["weights"])

    def accuracy(self, framework: str, variant: str, seed: int) -> dict[str, Any]:
        """Trains one seed by the recipe, every framework from the weights that ours starts from.

        A variant that is another model, and has no place for them, gives way to the default one.
        """
        weights = {} if framework == "jhgnn" else {"weights": self._first_weights(seed)}
        worker, opened = self.start(framework)
        if variant in opened.get("other_models", ()):
            variant = default_variant(framework, self.case)
        try:
            worker.ask("build", timeout_s=self.clock.limit(300), variant=variant, seed=seed, **weights)
            target = TARGET_F1[self.case.dataset]
            found = worker.ask("train", timeout_s=self.clock.limit(7200), target_f1=target)
        finally:
            worker.close()
        return found | {"variant": variant, "target_f1": target}


def chosen_columns(
    case: Case, tried: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """The columns to time: ours, each peer's quickest variant, its quickest with dense features where that is another.

    Ours again with dense features, and with all rows where that is another program. A peer whose variants were not
    probed uses its default one.
    """
    columns = {"jhgnn": ("jhgnn", "auto")}
    if case.dataset not in FEATURELESS:
        columns["jhgnn-dense"] = ("jhgnn", "dense features")
    if takes_fields(models.find(case.model)):  # others compute all rows anyway
        columns["jhgnn-all-rows"] = ("jhgnn", "all rows")
    for peer in PEERS:
        if missing[peer]:
            continue
        probed = {name: entry for name, entry in tried.get(peer, {}).items() if "epoch_ms" in entry}
        if not probed:
            columns[peer] = (peer, default_variant(peer, case))
            continue
        columns[peer] = (peer, min(probed, key=lambda name: probed[name]["epoch_ms"]))
        dense = [name for name in probed if probed[name]["features"] == "dense"]
        if dense and probed[columns[peer][1]]["features"] != "dense":
            columns[f"{peer}-dense"] = (peer, min(dense, key=lambda name: probed[name]["epoch_ms"]))
    return columns


def side_by_side(
    columns: Mapping[str, tuple[str, str]], known: Mapping[str, Mapping[str, Any]], available_bytes: int
) -> list[dict[str, tuple[str, str]]]:
    """The groups in which columns are timed: all in one, or those with dense features apart where memory is short.

    `known` holds a framework's peak memory, of the pass over default variants; an unknown one counts as nothing.
    """
    needed = sum(known.get(framework, {}).get("process_peak_bytes", 0) for framework, _ in columns.values())
    apart = {name: column for name, column in columns.items() if name.endswith("-dense")}
    if not apart or needed <= MEMORY_SHARE * available_bytes:
        return [dict(columns)]
    return [{name: column for name, column in columns.items() if name not in apart}, apart]
