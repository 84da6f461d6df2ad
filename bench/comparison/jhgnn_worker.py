"""jhgnn's process, answering the requests that `bench.peers.worker` answers."""

import time

_started = time.perf_counter()

import dataclasses  # noqa: E402
import functools  # noqa: E402
from collections.abc import Generator  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402

from bench.comparison.f1 import f1_scores  # noqa: E402
from bench.comparison.graph_folder import PlainGraph, read_graph  # noqa: E402
from bench.comparison.protocol import Answer, process_peak_bytes, serve  # noqa: E402
from jhgnn.config import Config  # noqa: E402
from jhgnn.graph.hetero_graph import HeteroGraph  # noqa: E402
from jhgnn.recipe import load_recipe, override  # noqa: E402
from jhgnn.sampling.epoch import Cursor  # noqa: E402
from jhgnn.step_memory import keep_step_memory  # noqa: E402
from jhgnn.training.loop import Programs, compile_programs  # noqa: E402
from jhgnn.training.minibatch_problem import MinibatchProblem, plan_minibatches  # noqa: E402
from jhgnn.training.minibatch_programs import (  # noqa: E402
    Fed,
    Feed,
    MinibatchPrograms,
    compile_minibatches,
    train_batches,
)
from jhgnn.training.objective import mean_loss  # noqa: E402
from jhgnn.training.optimizer import make_optimizer  # noqa: E402
from jhgnn.training.parallel import local  # noqa: E402
from jhgnn.training.problem import Problem, build_graphs, place  # noqa: E402
from jhgnn.training.state import Params, TrainState, init_params, init_state, num_params, param_names  # noqa: E402
from jhgnn.training.step import Compiled, apply_model, compile_ahead, dropout_seed  # noqa: E402

VARIANTS: dict[str, dict[str, dict[str, str]]] = {
    "auto": {},
    "dense features": {"kernels": {"projection": "dense"}},
    "all rows": {"training": {"rows": "all"}},
}
"""Variant -> what it sets in the recipe."""
MINIBATCH_VARIANTS = {"in turn": 0, "ahead": 1}
"""How batches are prepared -> sampling.prefetch_threads."""


class Session:
    """What a request needs from those before it."""

    graph: HeteroGraph
    plain: PlainGraph
    config: Config
    problem: Problem
    programs: Programs | None
    forward: Compiled | None
    state: TrainState
    minibatch_problem: MinibatchProblem
    minibatch_programs: MinibatchPrograms
    cursor: Cursor
    fed: Generator[Fed, None, None] | None = None  # of the loader in use


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
    session.config = config = override(session.config, tables, where=variant)
    start = time.perf_counter()
    metapaths, graphs = build_graphs(session.graph, config)
    sgb_s = time.perf_counter() - start
    session.problem = place(session.graph, metapaths, graphs, config)
    session.programs = session.forward = None
    params = init_params(config.model, session.problem.spec, seed)
    session.state = init_state(params, make_optimizer(config.training), seed)
    choices = sorted({f"{choice.op}: {choice.implementation}" for choice in session.problem.choices})
    return {
        "sgb_s": sgb_s,
        "params": num_params(params),
        "peak_before_bytes": before,
        "implementations": choices,
        "rows": session.problem.rows[0],
    }


def first_weights(folder: str, seed: int) -> Answer:
    """Writes the weights that a seed starts from, by each definition of `bench.parity`; their files by definition."""
    from bench.parity.ours import definitions  # with the readers, whose import is not part of a start

    written = {}
    for definition, config in definitions(session.config).items():
        spec = place(session.graph, *build_graphs(session.graph, config), config).spec
        leaves = param_names(init_params(config.model, spec, seed))
        path = Path(folder) / f"first-weights-{config.model.name}-{definition}-{seed}.npz"
        np.savez(path, **{name: np.asarray(leaf) for name, leaf in leaves.items()})  # type: ignore[arg-type]
        written[definition] = str(path)
    return {"weights": written}


def epochs(count: int) -> Answer:
    """Trains `count` epochs; seconds of each. The first request compiles, within its first epoch."""
    found = []
    problem = session.problem
    for _ in range(count):
        start = time.perf_counter()
        if session.programs is None:
            session.programs = compile_programs(problem, session.config)
        session.state, report = session.programs.step(session.state, *problem.step_arguments)
        jax.block_until_ready(report)
        found.append({"epoch_s": time.perf_counter() - start})
    return {"epochs": found}


def build_minibatches(seed: int) -> Answer:
    """The plan of the draws, capacities learnt by sampling, programs compiled for them, and parameters."""
    before = process_peak_bytes()
    config = session.config
    session.config = config = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
    start = time.perf_counter()
    session.minibatch_problem = problem = plan_minibatches(session.graph, config)
    session.minibatch_programs = programs = compile_minibatches(problem, config)
    params = init_params(config.model, problem.spec, seed)
    optimizer = make_optimizer(config.training, train_batches(problem, config).steps_per_epoch)
    session.state, session.cursor = programs.fleet.replicate(init_state(params, optimizer, seed)), Cursor()
    return {
        "params": num_params(params),
        "build_s": time.perf_counter() - start,
        "compile_s": programs.compile_s,
        "peak_before_bytes": before,
        "implementations": [f"sampling on the {problem.side[0]}"],
    }


def load_batches(variant: str) -> Answer:
    """Starts a loader where the one before stopped."""
    problem, config = session.minibatch_problem, session.config
    sampling = dataclasses.replace(config.sampling, prefetch_threads=MINIBATCH_VARIANTS[variant])
    config = dataclasses.replace(config, sampling=sampling)
    if session.fed is not None:
        session.fed.close()
    feed = Feed(problem, session.minibatch_programs, config, train_batches(problem, config))
    session.fed = feed.iterate(session.cursor)
    return {}


def batches(count: int) -> Answer:
    """Trains on `count` batches; seconds of each, and of waiting for it."""
    found, programs = [], session.minibatch_programs
    assert session.fed is not None
    for _ in range(count):
        start = time.perf_counter()
        fed = next(session.fed)
        ready = time.perf_counter()
        for bucket in range(fed.bucket, len(programs.steps)):
            session.state, report = programs.steps[bucket](session.state, programs.resident, fed.share)
            if fed.share.blocks is not None or not bool(local(report.overflowed)):
                break
        jax.block_until_ready((session.state, report))
        session.cursor = fed.following
        entry = {"batch_s": time.perf_counter() - start, "wait_s": ready - start, "loss": float(local(report.loss))}
        found.append(entry | {"targets": float(local(report.num_targets))})
    return {"batches": found}


def forward_epochs(count: int) -> Answer:
    """Seconds of the forward pass and the loss alone, with dropout, compiled by itself."""
    problem, config = session.problem, session.config
    assert session.programs is not None
    structure = session.programs.structure

    def objective(params: Params, state: TrainState, inputs: Any, labels: jax.Array, ids: jax.Array) -> jax.Array:
        output = apply_model(structure, params, inputs, dropout_seed(state), ids=ids)
        return mean_loss(output.logits, labels[ids], config.training.label_smoothing)

    arguments = (session.state.params, session.state, *problem.step_arguments)
    if session.forward is None:
        session.forward = compile_ahead(objective, arguments)
        jax.block_until_ready(session.forward(*arguments))
    found = []
    for _ in range(count):
        start = time.perf_counter()
        jax.block_until_ready(session.forward(*arguments))
        found.append(time.perf_counter() - start)
    return {"forward_s": found}


def train(target_f1: float) -> Answer:
    """Trains to the end of the recipe, by the peers' loop."""
    problem, config = session.problem, session.config
    session.programs = session.programs or compile_programs(problem, config)
    structure = session.programs.structure
    infer = jax.jit(functools.partial(apply_model, structure))
    labels, ids = session.plain.labels, problem.splits["val"]
    best_loss, waited, best_epoch, reached, done = float("inf"), 0, 0, None, 0
    best_logits = np.zeros(0)
    for epoch in range(1, config.training.epochs + 1):
        if 0 < config.training.patience <= waited:
            break
        epochs(1)
        logits = infer(session.state.params, problem.inputs).logits
        loss = float(mean_loss(logits[ids], problem.labels[ids]))
        done, waited, host = epoch, waited + 1, np.asarray(logits)
        if reached is None and f1_scores(host, labels, session.plain.splits["val"])[0] >= target_f1:
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
    programs = getattr(session, "programs", None) or getattr(session, "minibatch_programs", None)
    temp = programs.step.peak_temp_bytes if programs else 0
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
    if session.fed is not None:
        session.fed.close()  # ends the loader's threads before the interpreter does
