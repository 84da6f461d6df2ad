"""Writes the DistDGL partitions in `tests/distributed/stored` with DGL itself, in an environment that has it.

    DGLBACKEND=pytorch python -W ignore tests/distributed/write_distdgl.py tests/distributed/stored

`numbers.npz` beside them holds what went in. Written with DGL 1.1.3.
"""

import sys
from pathlib import Path

import dgl
import dgl.distributed
import numpy as np
import torch


def edges(rng: np.random.Generator, senders: int, receivers: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(rng.integers(0, senders, count)), torch.from_numpy(rng.integers(0, receivers, count))


def academic(numbers: dict[str, np.ndarray]) -> dgl.DGLGraph:
    """Papers with features, labels and masks; authors with half-precision features; venues with none."""
    rng = np.random.default_rng(0)
    writes, cites = edges(rng, 8, 12, 30), edges(rng, 12, 12, 20)
    graph = dgl.heterograph(
        {
            ("author", "writes", "paper"): writes,
            ("paper", "rev_writes", "author"): writes[::-1],
            ("paper", "cites", "paper"): cites,
            ("venue", "of", "paper"): (torch.arange(12) % 3, torch.arange(12)),
        },
        num_nodes_dict={"author": 8, "paper": 12, "venue": 3},
    )
    papers = graph.nodes["paper"].data
    papers["feat"] = torch.from_numpy(rng.normal(size=(12, 4)).astype(np.float32))
    papers["label"] = torch.from_numpy(rng.integers(0, 3, 12))
    papers["year"] = torch.arange(12) + 2000
    for number, split in enumerate(("train", "val", "test")):
        papers[f"{split}_mask"] = torch.arange(12) % 3 == number
    graph.nodes["author"].data["feat"] = torch.from_numpy(rng.normal(size=(8, 2))).half()
    graph.edges["cites"].data["weight"] = torch.from_numpy(rng.random(20).astype(np.float32))
    for relation in graph.canonical_etypes:
        senders, receivers = graph.edges(etype=relation)
        numbers["edges/" + ":".join(relation)] = np.stack([senders.numpy(), receivers.numpy()])
    for node_type in graph.ntypes:
        for name, values in graph.nodes[node_type].data.items():
            numbers[f"{node_type}/{name}"] = values.numpy()
    numbers["cites/weight"] = graph.edges["cites"].data["weight"].numpy()
    return graph


def homogeneous(numbers: dict[str, np.ndarray]) -> dgl.DGLGraph:
    rng = np.random.default_rng(1)
    senders, receivers = edges(rng, 10, 10, 24)
    graph = dgl.graph((senders, receivers), num_nodes=10)
    graph.ndata["feat"] = torch.from_numpy(rng.normal(size=(10, 3)).astype(np.float32))
    numbers["homogeneous/edges"] = np.stack([senders.numpy(), receivers.numpy()])
    numbers["homogeneous/feat"] = graph.ndata["feat"].numpy()
    return graph


def main(folder: Path) -> None:
    numbers: dict[str, np.ndarray] = {}
    torch.manual_seed(0)
    dgl.seed(0)
    graph, plain = academic(numbers), homogeneous(numbers)
    nodes, _ = dgl.distributed.partition_graph(
        graph, "academic", 2, str(folder / "distdgl"), part_method="metis", return_mapping=True
    )
    numbers |= {f"original/{node_type}": ids.numpy() for node_type, ids in nodes.items()}
    ids, _ = dgl.distributed.partition_graph(
        plain, "plain", 2, str(folder / "distdgl_csc"), part_method="random", return_mapping=True, graph_formats=["csc"]
    )
    numbers["original/homogeneous"] = ids.numpy()
    np.savez_compressed(folder / "numbers.npz", **numbers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
