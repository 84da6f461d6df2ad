"""Run by `test_interop_peers.py` with the Python of the peers: round trips through PyG or DGL; prints what it saw."""

import json
import sys

import numpy as np
import torch
from scipy import sparse

from jhgnn.data.interop import from_dgl, from_pyg, to_dgl, to_pyg
from jhgnn.data.synthetic import generate
from jhgnn.errors import InputError
from tests.data.interop_graphs import assert_same_graph, random_graph

GRAPHS = [
    {"seed": seed, "multi_label": seed % 2 == 1, "joined": True, "empty": seed % 5 == 0} for seed in range(20)
]  # arguments of random_graph


def refused(call) -> str:
    try:
        call()
    except InputError as error:
        return str(error)
    return "accepted"


def pyg() -> dict:
    for arguments in GRAPHS:
        graph = random_graph(**arguments)
        data = to_pyg(graph)
        data.validate()
        assert_same_graph(from_pyg(data, sparse_below=0), graph)
        assert_same_graph(from_pyg(to_pyg(graph, densify=True), sparse_below=0), graph, densified=True)
    acm = generate("acm", scale=0.1)
    data = to_pyg(acm)
    assert_same_graph(from_pyg(data), acm)
    assert_same_graph(from_pyg(to_pyg(acm, densify=True), sparse_below=0.3), acm)  # 5 to 25 % dense
    paper, relation = data["paper"], data["author", "writes", "paper"]
    data["author"].x, before = torch.zeros_like(data["author"].x), acm.features["author"].sum()
    other = to_pyg(acm)
    other["author"].y = torch.zeros(acm.num_nodes["author"], dtype=torch.long)
    broken = to_pyg(acm)
    broken["author", "writes", "paper"].edge_index[0, 3] = 10**6
    bare = to_pyg(acm)
    del bare["author", "writes", "paper"].edge_index
    return {
        "x": [str(paper.x.layout), list(paper.x.shape), str(paper.x.dtype)],
        "dense": str(to_pyg(acm, densify=True)["paper"].x.layout),
        "y": str(paper.y.dtype),
        "masks": [int(paper[f"{split}_mask"].sum()) for split in ("train", "val", "test")],
        "edge_index": [list(relation.edge_index.shape), str(relation.edge_index.dtype)],
        "unchanged": bool(acm.features["author"].sum() == before),
        "errors": [
            refused(lambda: from_pyg(other)),
            refused(lambda: from_pyg(broken)),
            refused(lambda: from_pyg(bare)),
            refused(lambda: from_pyg(to_pyg(acm), target="book")),
        ],
        "chosen": from_pyg(other, target="paper").target,
    }


def dgl() -> dict:
    for arguments in GRAPHS:
        graph = random_graph(**arguments)
        back = from_dgl(to_dgl(graph), target=graph.target, num_classes=graph.num_classes, sparse_below=0)
        assert_same_graph(back, graph, ordered=False, densified=True)
    acm = generate("acm", scale=0.1)
    held = to_dgl(acm)
    assert_same_graph(from_dgl(held, sparse_below=0.3), acm, ordered=False)
    shown = {
        "etypes": [list(edge_type) for edge_type in held.canonical_etypes],
        "feat": [str(held.nodes["paper"].data["feat"].dtype), list(held.nodes["paper"].data["feat"].shape)],
        "label": str(held.nodes["paper"].data["label"].dtype),
        "masks": [int(held.nodes["paper"].data[f"{split}_mask"].sum()) for split in ("train", "val", "test")],
        "sparse": sparse.issparse(from_dgl(held).features["paper"]),
    }
    held.nodes["author"].data["label"] = torch.zeros(acm.num_nodes["author"], dtype=torch.long)
    broken = to_dgl(acm)
    broken.nodes["paper"].data["feat"][5, 0] = np.nan
    lonely = next(g for g in map(random_graph, range(100)) if not _all_joined(g))
    shown["errors"] = [
        refused(lambda: from_dgl(held)),
        refused(lambda: from_dgl(broken)),
        refused(lambda: to_dgl(lonely)),
    ]
    return shown


def _all_joined(graph) -> bool:
    return {end for r in graph.edges for end in (r.source, r.target)} == set(graph.num_nodes)


if __name__ == "__main__":
    print(json.dumps({"pyg": pyg, "dgl": dgl}[sys.argv[1]]()))
