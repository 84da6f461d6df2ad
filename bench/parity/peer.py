"""The peer's half: our weights in, outputs, gradients and Adam steps out. `python -m bench.parity.peer FOLDER dgl|pyg
float32|float64 [VARIANT ...]`.

Reads FOLDER/graph, FOLDER/settings.json and FOLDER/params.npz; writes one npz a variant, and what each came to as JSON
lines. Dropout is off.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bench.comparison.graph_folder import read_graph
from bench.parity.links import collect, links, load
from bench.peers.variants import FRAMEWORKS, applicable, build


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
        optimizer = torch.optim.Adam(
            built.model.parameters(), settings["learning_rate"], weight_decay=settings["weight_decay"]
        )
        built.model.eval()
        logits = built.logits()
        results = {"logits": logits.detach().numpy()}
        for step in range(settings["parity_steps"]):
            rows = (logits if step == 0 else built.logits())[train]
            if labels.ndim == 1:
                loss = functional.cross_entropy(rows, labels[train])
            else:
                loss = functional.binary_cross_entropy_with_logits(rows, labels[train].to(rows.dtype))
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                gradients = collect(found, params, lambda parameter: parameter.grad)
                results |= {f"gradient.{key}": array for key, array in gradients.items()}
            optimizer.step()
        results |= {f"after.{key}": array for key, array in collect(found, params, lambda each: each).items()}
        with torch.no_grad():
            results["logits_after"] = built.logits().numpy()
        path = folder / f"{framework}_{number}.npz"
        np.savez(path, **results)
        print(
            json.dumps({"variant": name, "definition": f"{variant.definition}/{variant.features}", "file": path.name}),
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
