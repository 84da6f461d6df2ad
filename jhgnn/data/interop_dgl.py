"""HeteroGraph to and from a heterogeneous `dgl.DGLGraph`."""

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

_INSTALL = "install the dgl build that fits your torch, see https://www.dgl.ai/pages/start.html"


def to_dgl(graph: HeteroGraph) -> Any:
    """The heterograph as `dgl.heterograph`.

    Nodes carry `feat` (float32, dense: DGL has no sparse node data), the target type also `label` (int64 class ids, or
    float32 zeros and ones if multi-label), `train_mask`, `val_mask` and `test_mask`; edges carry `weight` where there
    are weights.

    DGL orders node types and relations by name, and knows the node types of relations only.

    Raises:
        InputError: DGL is not installed, or a node type is at no relation's end.
    """
    torch = import_peer("torch", "to_dgl", _INSTALL)
    dgl = import_peer("dgl", "to_dgl", _INSTALL)
    joined = {end for relation in graph.edges for end in (relation.source, relation.target)}
    for node_type in graph.schema.node_types:
        if node_type not in joined:
            raise InputError(f"node type {node_type!r} of graph {graph.name!r} has no relation; DGL cannot hold it")
    pairs = {
        (relation.source, relation.name, relation.target): (
            torch.from_numpy(edge_set.senders.astype(np.int64)),
            torch.from_numpy(edge_set.receivers.astype(np.int64)),
        )
        for relation, edge_set in graph.edges.items()
    }
    result = dgl.heterograph(pairs, num_nodes_dict=dict(graph.num_nodes))
    for node_type, features in graph.features.items():
        result.nodes[node_type].data["feat"] = feature_tensor(torch, features, densify=True)
    if graph.target is not None:
        data = result.nodes[graph.target].data
        if graph.labels is not None:
            data["label"] = label_tensor(torch, graph)
        for key, mask in mask_tensors(torch, graph).items():
            data[key] = mask
    for relation, edge_set in graph.edges.items():
        if edge_set.weights is not None:
            edge_type = (relation.source, relation.name, relation.target)
            result.edges[edge_type].data["weight"] = copied_tensor(torch, edge_set.weights)
    return result


def from_dgl(
    graph: Any,
    *,
    target: str | None = None,
    num_classes: int | None = None,
    name: str = "dgl",
    sparse_below: float = 0.1,
) -> HeteroGraph:
    """The heterograph of a `dgl.DGLGraph`; undoes `to_dgl` up to the order of types and relations, which DGL sorts.

    Reads `feat`, `label`, `*_mask` and `weight`; other data are left out.

    Args:
        target: the labelled type; found by itself where one type only has `label`.
        num_classes: default: from the labels.
        sparse_below: features with a smaller share of non-zeros are kept as CSR; 0 keeps them dense.

    Raises:
        InputError: the target is unclear, or what `HeteroGraph.from_arrays` refuses.
    """
    where = "DGLGraph"
    num_nodes = {node_type: int(graph.num_nodes(node_type)) for node_type in graph.ntypes}
    features = {
        node_type: features_from(graph.nodes[node_type].data["feat"], sparse_below)
        for node_type in graph.ntypes
        if "feat" in graph.nodes[node_type].data
    }
    edges: dict[Relation | tuple[str, str, str], tuple[np.ndarray, ...]] = {}
    for edge_type in graph.canonical_etypes:
        senders, receivers = (ids.cpu().numpy() for ids in graph.edges(etype=edge_type, order="eid"))
        arrays: tuple[np.ndarray, ...] = (senders, receivers)
        if "weight" in graph.edges[edge_type].data:
            arrays = (*arrays, graph.edges[edge_type].data["weight"].detach().cpu().numpy())
        edges[Relation(*edge_type)] = arrays
    masked = [t for t in graph.ntypes if "train_mask" in graph.nodes[t].data]
    labelled = [t for t in graph.ntypes if "label" in graph.nodes[t].data]
    target = only_target(labelled or masked, target, "from_dgl", "label")
    if target is not None and target not in num_nodes:
        raise InputError(f"{where}: target {target!r} is not a node type; known: {', '.join(num_nodes)}")
    data = graph.nodes[target].data if target is not None else {}
    labels = data["label"].cpu().numpy() if "label" in data else None
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes,
        edges=edges,
        features=features,
        target=target,
        labels=labels,
        num_classes=num_classes if labels is not None else None,
        splits=splits_from(data),
        name=name,
        where=where,
    )
