"""HeteroGraph to and from `torch_geometric.data.HeteroData`."""

from typing import Any

import numpy as np

from jhgnn.data.interop_torch import (
    copied_tensor,
    feature_tensor,
    features_from,
    import_peer,
    label_tensor,
    mask_tensors,
    only_target,
    splits_from,
)
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

_INSTALL = "pip install torch torch-geometric"


def to_pyg(graph: HeteroGraph, *, densify: bool = False) -> Any:
    """The heterograph as `HeteroData`.

    Node types get `num_nodes` and `x` (float32 `[num_nodes, width]`; CSR features become sparse COO tensors, or dense
    ones with `densify`; none without features), the target type also `y` (int64 class ids, or float32 zeros and ones
    if multi-label), `num_classes`, `train_mask`, `val_mask` and `test_mask`. Relations get `edge_index` int64
    `[2, num_edges]` (senders, receivers) and `edge_weight` where there are weights. `graph_name` holds the name.

    Raises:
        InputError: PyTorch or PyTorch Geometric is not installed.
    """
    torch = import_peer("torch", "to_pyg", _INSTALL)
    data = import_peer("torch_geometric.data", "to_pyg", _INSTALL).HeteroData()
    data.graph_name = graph.name
    for node_type in graph.schema.node_types:
        data[node_type].num_nodes = graph.num_nodes[node_type]
        if node_type in graph.features:
            data[node_type].x = feature_tensor(torch, graph.features[node_type], densify)
    if graph.target is not None:
        store = data[graph.target]
        if graph.labels is not None:
            store.y = label_tensor(torch, graph)
            store.num_classes = graph.num_classes
        for key, mask in mask_tensors(torch, graph).items():
            store[key] = mask
    for relation, edge_set in graph.edges.items():
        store = data[relation.source, relation.name, relation.target]
        pairs = np.stack([edge_set.senders, edge_set.receivers]).astype(np.int64)
        store.edge_index = torch.from_numpy(pairs)
        if edge_set.weights is not None:
            store.edge_weight = copied_tensor(torch, edge_set.weights)
    return data


def from_pyg(
    data: Any,
    *,
    target: str | None = None,
    num_classes: int | None = None,
    name: str | None = None,
    sparse_below: float = 0.1,
) -> HeteroGraph:
    """The heterograph of a `HeteroData`; undoes `to_pyg` exactly.

    Reads `x`, `y`, `*_mask`, `edge_index` and `edge_weight`; other attributes are left out.

    Args:
        target: the labelled type; found by itself where one type only has `y`.
        num_classes: default: what `to_pyg` noted, else from the labels.
        name: default: what `to_pyg` noted, else `pyg`.
        sparse_below: dense `x` with a smaller share of non-zeros is kept as CSR; 0 keeps dense ones dense.

    Raises:
        InputError: the target is unclear, a relation has no `edge_index`, a node type has no number of nodes, or what
            `HeteroGraph.from_arrays` refuses.
    """
    where = "HeteroData"
    num_nodes, features = {}, {}
    for node_type in data.node_types:
        store = data[node_type]
        if store.num_nodes is None:
            raise InputError(f"{where}: node type {node_type!r} has neither x nor num_nodes")
        num_nodes[node_type] = int(store.num_nodes)
        if "x" in store and store["x"] is not None:
            features[node_type] = features_from(store["x"], sparse_below)
    edges: dict[Relation | tuple[str, str, str], tuple[np.ndarray, ...]] = {}
    for edge_type in data.edge_types:
        store = data[edge_type]
        if "edge_index" not in store:
            raise InputError(f"{where}: relation {edge_type} has no edge_index; adjacency tensors are not read")
        pairs = tuple(store["edge_index"].cpu().numpy())
        if "edge_weight" in store:
            pairs = (*pairs, store["edge_weight"].detach().cpu().numpy())
        edges[Relation(*edge_type)] = pairs
    masked = [t for t in data.node_types if "y" in data[t] or "train_mask" in data[t]]
    target = only_target([t for t in data.node_types if "y" in data[t]] or masked, target, "from_pyg", "y")
    if target is not None and target not in num_nodes:
        raise InputError(f"{where}: target {target!r} is not a node type; known: {', '.join(num_nodes)}")
    store = data[target] if target is not None else {}
    labels = store["y"].cpu().numpy() if "y" in store else None
    if num_classes is None and "num_classes" in store:
        num_classes = int(store["num_classes"])
    noted = getattr(data, "graph_name", "pyg")
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes,
        edges=edges,
        features=features,
        target=target,
        labels=labels,
        num_classes=num_classes if labels is not None else None,
        splits=splits_from(store),
        name=noted if name is None else name,
        where=where,
    )
