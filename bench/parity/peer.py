"""The peer's half: our weights in, outputs, gradients and optimizer steps out. `python -m bench.parity.peer FOLDER
dgl|pyg float32|float64 [VARIANT ...]`; in float64, the reference, without SGD's steps.

Reads FOLDER/graph, FOLDER/settings.json and FOLDER/params_DEFINITION.npz; writes one npz a variant, and what each came
to as JSON lines. Dropout is off.
"""

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.comparison.graph_folder import read_graph
from bench.parity.links import collect, links, load
from bench.peers.training import loss_of
from bench.peers.variants import FRAMEWORKS, Built, applicable, build

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),
}


def main(folder: Path, framework: str, precision: str, only: list[str]) -> None:
    graph = read_graph(folder / "graph")
    by_definition = json.loads((folder / "settings.json").read_text())
    variants = FRAMEWORKS[framework]()[by_definition["default"]["name"]]
    for number, (name, variant) in enumerate(variants.items()):
        if only and name not in only:
            continue
        if variant.definition is None or variant.compiled or not applicable(variant, graph):
            continue
        settings = by_definition[variant.definition]
        with np.load(folder / f"params_{variant.definition}.npz", allow_pickle=False) as file:
            params = dict(file)
        built = build(variant, graph, settings, variant.graphs(graph, settings))
        if precision == "float64":
            built = built.double()
        found = links(built.model, graph, settings)
        mapped = {id(link.theirs) for link in found}
        unmapped = [each for each, parameter in built.model.named_parameters() if id(parameter) not in mapped]
        if unmapped:
            raise ValueError(f"{name}: no counterpart of {', '.join(unmapped)}")
        load(found, params)
        train = torch.from_numpy(graph.splits["train"])
        labels = torch.from_numpy(graph.labels)
        built.model.eval()
        logits = built.logits()
        results = {"logits": logits.detach().numpy()}
        loss_of(logits, labels, train).backward()
        gradients = collect(found, params, lambda parameter: parameter.grad)
        results |= {f"gradient.{key}": array for key, array in gradients.items()}
        for kind in OPTIMIZERS if precision == "float32" else ("adam",):
            load(found, params)
            results |= steps(kind, built, labels, train, settings)
            results |= {f"{kind}.{key}": array for key, array in collect(found, params, lambda each: each).items()}
        path = folder / f"{framework}_{precision}_{number}.npz"
        np.savez(path, **results)
        print(
            json.dumps({"variant": name, "definition": f"{variant.definition}/{variant.features}", "file": path.name}),
            flush=True,
        )


def steps(
    kind: str, built: Built, labels: torch.Tensor, train: torch.Tensor, settings: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Losses before each optimizer step, and logits after all; moves the parameters."""
    arguments = {"lr": settings["learning_rate"], "weight_decay": settings["weight_decay"]}
    optimizer = OPTIMIZERS[kind](built.model.parameters(), **arguments)
    losses = []
    for _ in range(settings["parity_steps"]):
        loss = loss_of(built.logits(), labels, train)
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return {f"losses_{kind}": np.array(losses), f"logits_{kind}": built.logits().numpy()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
