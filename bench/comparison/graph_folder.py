"""A heterograph as a folder that every framework reads alike: NumPy arrays and a JSON listing; no jax, no torch."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

Triple = tuple[str, str, str]
Edges = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class PlainGraph:
    """What a run of any framework reads.

    Attributes:
        num_nodes: nodes of each type.
        relations: (source, name, target) of each relation.
        edges: int64 (senders, receivers) of each relation, in the order of `relations`.
        features: float32 dense or CSR by node type; a type without features is absent.
        target: the node type to classify.
        labels: int64 `[num_targets]`, or uint8 `[num_targets, num_classes]` for multi-label data.
        splits: `train`, `val`, `test` -> int64 ids of target nodes.
        metapaths: name -> positions in `relations`, for HAN.
    """

    name: str
    num_nodes: Mapping[str, int]
    relations: Sequence[Triple]
    edges: Sequence[Edges]
    features: Mapping[str, np.ndarray | sparse.csr_array]
    target: str
    labels: np.ndarray
    num_classes: int
    splits: Mapping[str, np.ndarray]
    metapaths: Mapping[str, Sequence[int]]


def write_graph(graph: PlainGraph, folder: Path) -> None:
    """Writes the folder; the listing last, so that a folder with one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {"labels": graph.labels}
    for number, (senders, receivers) in enumerate(graph.edges):
        arrays |= {f"senders_{number}": senders, f"receivers_{number}": receivers}
    for node_type, matrix in graph.features.items():
        if isinstance(matrix, np.ndarray):
            arrays[f"x_{node_type}"] = matrix
        else:
            arrays |= {f"x_{node_type}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    arrays |= {f"split_{split}": ids for split, ids in graph.splits.items()}
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    listing: dict[str, Any] = {
        "name": graph.name,
        "num_nodes": dict(graph.num_nodes),
        "relations": [list(triple) for triple in graph.relations],
        "features": {
            node_type: ["dense" if isinstance(matrix, np.ndarray) else "csr", list(matrix.shape)]
            for node_type, matrix in graph.features.items()
        },
        "target": graph.target,
        "num_classes": graph.num_classes,
        "splits": list(graph.splits),
        "metapaths": {name: list(steps) for name, steps in graph.metapaths.items()},
    }
    temporary = folder / ".graph.json.tmp"
    temporary.write_text(json.dumps(listing), encoding="utf-8")
    temporary.replace(folder / "graph.json")


def read_graph(folder: Path) -> PlainGraph:
    """Reads what `write_graph` wrote."""
    listing = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        features: dict[str, np.ndarray | sparse.csr_array] = {}
        for node_type, (layout, shape) in listing["features"].items():
            if layout == "dense":
                features[node_type] = arrays[f"x_{node_type}"]
            else:
                parts = tuple(arrays[f"x_{node_type}_{part}"] for part in ("data", "indices", "indptr"))
                features[node_type] = sparse.csr_array(parts, shape=tuple(shape))
        return PlainGraph(
            name=listing["name"],
            num_nodes=listing["num_nodes"],
            relations=[(source, name, target) for source, name, target in listing["relations"]],
            edges=[(arrays[f"senders_{i}"], arrays[f"receivers_{i}"]) for i in range(len(listing["relations"]))],
            features=features,
            target=listing["target"],
            labels=arrays["labels"],
            num_classes=listing["num_classes"],
            splits={split: arrays[f"split_{split}"] for split in listing["splits"]},
            metapaths=listing["metapaths"],
        )
