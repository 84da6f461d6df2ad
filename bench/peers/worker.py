"""A peer's process: `python -m bench.peers.worker`, with `PYTHONPATH` at the repository's root."""

import time

_started = time.perf_counter()

import dataclasses  # noqa: E402
import random  # noqa: E402
from collections.abc import Mapping  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from bench.comparison.graph_folder import PlainGraph, read_graph  # noqa: E402
from bench.comparison.protocol import Answer, process_peak_bytes, reset_process_peak, serve  # noqa: E402
from bench.parity.links import links, load  # noqa: E402
from bench.peers.minibatch import VARIANTS as MINIBATCH_VARIANTS  # noqa: E402
from bench.peers.minibatch import MinibatchTrainer, modules  # noqa: E402
from bench.peers.training import Trainer  # noqa: E402
from bench.peers.variants import FRAMEWORKS, Built, applicable, build  # noqa: E402


class State:
    """What a request needs from those before it."""

    graph: PlainGraph
    settings: dict[str, Any]
    variants: dict[str, Any]
    framework: str
    trainer: Trainer
    minibatches: MinibatchTrainer


def open_case(framework: str, folder: str, settings: dict[str, Any], threads: int) -> Answer:
    """Reads the graph; `import_s` runs from the process's first line to the framework's end of import."""
    torch.set_num_threads(threads)
    state.framework, state.variants = framework, FRAMEWORKS[framework]()[settings["name"]]
    if settings.get("batch_size"):
        modules(framework)  # says at once what is not installed
    import_s = time.perf_counter() - _started
    start = time.perf_counter()
    state.graph, state.settings = read_graph(Path(folder)), settings
    fitting = [name for name, variant in state.variants.items() if applicable(variant, state.graph)]
    features = {name: state.variants[name].features for name in fitting}
    other_models = [name for name in fitting if state.variants[name].definition is None]
    if settings.get("batch_size"):
        fitting, features = list(MINIBATCH_VARIANTS), dict.fromkeys(MINIBATCH_VARIANTS, "dense")
    versions = {"torch": torch.__version__}
    versions[framework] = version({"dgl": "dgl", "pyg": "torch-geometric"}[framework])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "import_s": import_s,
        "read_s": time.perf_counter() - start,
        "variants": fitting,
        "features": features,
        "other_models": other_models,
        "versions": versions,
        "device": device,
    }


def build_model(variant: str, seed: int, weights: Mapping[str, str] | None = None) -> Answer:
    """Semantic graphs and model; its own initial weights, or ours from files by definition.

    Raises:
        ValueError: the variant has no counterpart of our weights.
    """
    seed_all(seed)
    chosen = state.variants[variant]
    before = process_peak_bytes()
    start = time.perf_counter()
    graphs = chosen.graphs(state.graph, state.settings)
    sgb_s = time.perf_counter() - start
    built = build(chosen, state.graph, state.settings, graphs)
    if weights:
        if chosen.definition is None:
            raise ValueError(f"{variant} is another model: it cannot start from our weights")
        with np.load(weights[chosen.definition], allow_pickle=False) as file:
            load(links(built.model, state.graph, state.settings), dict(file))
    if chosen.compiled:
        built = Built(torch.compile(built.model, dynamic=False), built.graphs, built.features)
    state.trainer = Trainer(built, state.graph, state.settings)
    params = sum(parameter.numel() for parameter in built.model.parameters())
    return {"sgb_s": sgb_s, "params": params, "peak_before_bytes": before}


def epochs(count: int) -> Answer:
    """Trains `count` epochs; seconds of each."""
    return {"epochs": [state.trainer.epoch() for _ in range(count)]}


def build_minibatches(seed: int) -> Answer:
    """The graph as samplers read it, and the model."""
    seed_all(seed)
    before = process_peak_bytes()
    start = time.perf_counter()
    state.minibatches = MinibatchTrainer(state.framework, state.graph, state.settings)
    state.graph = dataclasses.replace(state.graph, edges=[])  # what was read is the framework's own graph now
    return {"params": state.minibatches.params, "build_s": time.perf_counter() - start, "peak_before_bytes": before}


def load_batches(variant: str) -> Answer:
    """Starts a loader."""
    state.minibatches.load(variant)
    return {}


def batches(count: int) -> Answer:
    """Trains on `count` batches; seconds of each, and of waiting for it."""
    return {"batches": [state.minibatches.batch() for _ in range(count)]}


def train(target_f1: float) -> Answer:
    """Trains to the end of the recipe."""
    return state.trainer.train(target_f1)


def memory() -> Answer:
    """High-water marks."""
    device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"process_peak_bytes": process_peak_bytes(), "device_peak_bytes": device}


def reset_memory() -> Answer:
    """Sets the process's high-water mark back."""
    return {"before_bytes": reset_process_peak()}


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    try:
        import dgl

        dgl.seed(seed)
    except ImportError:
        pass


state = State()

if __name__ == "__main__":
    serve(
        {
            "open": open_case,
            "build": build_model,
            "epochs": epochs,
            "build_minibatches": build_minibatches,
            "load_batches": load_batches,
            "batches": batches,
            "train": train,
            "memory": memory,
            "reset_memory": reset_memory,
        }
    )
