"""jhgnn's process, answering the requests that `bench.peers.worker` answers."""

import time

_started = time.perf_counter()

import dataclasses  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402

from bench.comparison.cases import problem_of  # noqa: E402
from bench.comparison.f1 import f1_scores  # noqa: E402
from bench.comparison.graph_folder import PlainGraph, read_graph  # noqa: E402
from bench.comparison.protocol import Answer, process_peak_bytes, serve  # noqa: E402
from bench.stepper import Stepper  # noqa: E402
from jhgnn.config import Config  # noqa: E402
from jhgnn.config.recipe import load_recipe, override  # noqa: E402
from jhgnn.graph.hetero_graph import HeteroGraph  # noqa: E402
from jhgnn.runtime.step_memory import keep_step_memory  # noqa: E402
from jhgnn.tasks.class_counts import mean_loss  # noqa: E402
from jhgnn.training.execution import Execution, Programs  # noqa: E402
from jhgnn.training.mesh import local  # noqa: E402
from jhgnn.training.prepare import execution_of  # noqa: E402
from jhgnn.training.programs import Compiled, compile_ahead, compile_lowered  # noqa: E402
from jhgnn.training.state import Params, TrainState, num_params, param_names  # noqa: E402
from jhgnn.training.whole_graph import WholeGraph  # noqa: E402

VARIANTS: dict[str, dict[str, dict[str, str]]] = {
    "auto": {},
    "dense features": {"kernels": {"projection": "dense"}},
    "all rows": {"training": {"rows": "all"}},
}
"""Variant -> what it sets in the recipe."""
MINIBATCH_VARIANTS = {"in turn": 0, "ahead": 1}
"""How batches are prepared -> sampling.prefetch_threads."""


class Session:
    """What a request needs from those before it; `programs` are compiled by the first request that runs them."""

    graph: HeteroGraph
    plain: PlainGraph
    config: Config
    execution: Execution
    programs: Programs | None = None
    forward: Compiled | None = None
    state: TrainState  # until there is a stepper, which takes it over
    stepper: Stepper | None = None

    def begin(self, execution: Execution, seed: int) -> Params:
        """Takes another execution, with the first state of a seed; its parameters."""
        self.close()
        self.execution, self.programs, self.forward, self.stepper = execution, None, None, None
        self.state = execution.initial_state(seed)
        return self.state.params

    def steps(self) -> Stepper:
        """The steps so far; the first call compiles."""
        if self.programs is None:
            self.programs = self.execution.compile()
        if self.stepper is None:
            self.stepper = Stepper(self.programs, self.programs.place(self.state))
        return self.stepper

    def close(self) -> None:
        """Ends the loader's threads."""
        if self.stepper is not None:
            self.stepper.close()


def hetero_graph(plain: PlainGraph) -> HeteroGraph:
    """The neutral folder through the public constructor, which validates it."""
    return HeteroGraph.from_arrays(
        name=plain.name,
        num_nodes=plain.num_nodes,
        edges=dict(zip(plain.relations, plain.edges, strict=True)),
        features=plain.features,
        target=plain.target,
        labels=plain.labels,
        num_classes=plain.num_classes,
        splits=plain.splits,
    )


def open_case(framework: str, folder: str, recipe: str, settings: dict[str, Any], threads: int) -> Answer:
    """Reads the graph; `import_s` runs from the process's first line to the end of imports."""
    import_s = time.perf_counter() - _started
    start = time.perf_counter()
    session.plain = read_graph(Path(folder))
    session.graph, session.config = hetero_graph(session.plain), load_recipe(recipe)
    sparse = any(not isinstance(matrix, np.ndarray) for matrix in session.graph.features.values())
    names = [name for name in VARIANTS if name != "dense features" or sparse]
    if session.config.sampling.batch_size:
        names = list(MINIBATCH_VARIANTS)
    return {
        "import_s": import_s,
        "read_s": time.perf_counter() - start,
        "variants": names,
        "features": {name: "dense" if name == "dense features" else "sparse" for name in names},
        "versions": {name: version(name) for name in ("jhgnn", "jax", "flax", "optax", "numpy", "scipy")},
        "device": jax.devices()[0].device_kind,
    }


def build_model(variant: str, seed: int) -> Answer:
    """Semantic graphs, compiled on nobody's time but the first epoch's, and parameters."""
    before = process_peak_bytes()
    tables = {"sgb": {"cache_dir": ""}, "run": {"seed": seed}} | VARIANTS[variant]
    session.config = override(session.config, tables, where=variant)
    execution = execution_of(problem_of(session.graph, session.config))
    params = session.begin(execution, seed)
    return {
        "sgb_s": execution.sgb_s,
        "params": num_params(params),
        "peak_before_bytes": before,
        "implementations": sorted({f"{choice.op}: {choice.implementation}" for choice in execution.choices}),
        "rows": execution.facts()["rows"],
    }


def first_weights(folder: str, seed: int) -> Answer:
    """Writes the weights that a seed starts from, by each definition of `bench.parity`; their files by definition."""
    from bench.parity.ours import definitions  # not part of a start

    written = {}
    for definition, config in definitions(session.config).items():
        leaves = param_names(execution_of(problem_of(session.graph, config)).initial_params(seed))
        path = Path(folder) / f"first-weights-{config.model.name}-{definition}-{seed}.npz"
        np.savez(path, **{name: np.asarray(leaf) for name, leaf in leaves.items()})  # type: ignore[arg-type]
        written[definition] = str(path)
    return {"weights": written}


def epochs(count: int) -> Answer:
    """Trains `count` epochs; seconds of each. The first request compiles, within its first epoch."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        session.steps().step()
        found.append({"epoch_s": time.perf_counter() - start})
    return {"epochs": found}


def build_minibatches(seed: int) -> Answer:
    """The plan of the draws, capacities learnt by sampling, programs compiled for them, and parameters."""
    before = process_peak_bytes()
    session.config = dataclasses.replace(session.config, run=dataclasses.replace(session.config.run, seed=seed))
    start = time.perf_counter()
    execution = execution_of(problem_of(session.graph, session.config))
    params = session.begin(execution, seed)
    session.plain = dataclasses.replace(session.plain, edges=[])  # what was read is the peers' and our own graph now
    session.programs = execution.compile()
    return {
        "params": num_params(params),
        "build_s": time.perf_counter() - start,
        "compile_s": session.programs.compile_s,
        "peak_before_bytes": before,
        "implementations": [f"sampling on the {execution.profile_facts()['sampling']['side']}"],
    }


def load_batches(variant: str) -> Answer:
    """Starts a loader where the one before stopped."""
    before = session.steps()
    before.close()
    threads = MINIBATCH_VARIANTS[variant]
    session.stepper = Stepper(before.programs, before.state, cursor=before.cursor, prefetch_threads=threads)
    return {}


def batches(count: int) -> Answer:
    """Trains on `count` batches; seconds of each, and of waiting for it."""
    found = []
    for _ in range(count):
        step = session.steps().step()
        loss, targets = float(local(step.report.loss)), float(local(step.report.num_examples))
        found.append({"batch_s": step.seconds, "wait_s": step.wait_s, "loss": loss, "targets": targets})
    return {"batches": found}


def forward_epochs(count: int) -> Answer:
    """Seconds of the forward pass and the loss alone, with dropout, compiled by itself."""
    execution, state = session.execution, session.steps().state
    assert isinstance(execution, WholeGraph)
    ids = jax.numpy.asarray(execution.task.training_examples())
    state = execution.joined.split(state)
    arguments = (state.params, state, execution.resident, ids)
    if session.forward is None:
        session.forward = compile_ahead(execution.update_program.mean_loss, arguments)
        jax.block_until_ready(session.forward(*arguments))
    found = []
    for _ in range(count):
        start = time.perf_counter()
        jax.block_until_ready(session.forward(*arguments))
        found.append(time.perf_counter() - start)
    return {"forward_s": found}


def train(target_f1: float) -> Answer:
    """Trains to the end of the recipe, by the peers' loop."""
    execution, training = session.execution, session.config.training
    assert isinstance(execution, WholeGraph)
    infer = compile_lowered(execution.lower_inference)
    labels, ids = session.plain.labels, session.plain.splits["val"]
    best_loss, waited, best_epoch, reached, done = float("inf"), 0, 0, None, 0
    best_logits = np.zeros(0)
    for epoch in range(1, training.epochs + 1):
        if 0 < training.patience <= waited:
            break
        epochs(1)
        logits = infer(session.steps().state.params, execution.inputs)
        loss = float(mean_loss(logits[ids], labels[ids]))
        done, waited, host = epoch, waited + 1, np.asarray(logits)
        if reached is None and f1_scores(host, labels, ids)[0] >= target_f1:
            reached = epoch
        if loss < best_loss:
            best_loss, best_logits, best_epoch, waited = loss, host, epoch, 0
    micro, macro = f1_scores(best_logits, labels, session.plain.splits["test"])
    return {
        "test_micro_f1": micro,
        "test_macro_f1": macro,
        "best_epoch": best_epoch,
        "epochs": done,
        "epochs_to_target": reached,
    }


def memory() -> Answer:
    """High-water marks, and XLA's own figure of the step's temporaries."""
    statistics = jax.devices()[0].memory_stats() or {}
    temp = session.programs.step.peak_temp_bytes if session.programs else 0
    return {
        "process_peak_bytes": process_peak_bytes(),
        "device_peak_bytes": int(statistics.get("peak_bytes_in_use", 0)),
        "xla_temp_bytes": temp,
    }


session = Session()

if __name__ == "__main__":
    keep_step_memory()
    serve(
        {
            "open": open_case,
            "build": build_model,
            "first_weights": first_weights,
            "epochs": epochs,
            "forward": forward_epochs,
            "build_minibatches": build_minibatches,
            "load_batches": load_batches,
            "batches": batches,
            "train": train,
            "memory": memory,
        }
    )
    session.close()  # ends the loader's threads before the interpreter does
