"""HeteroGraph to and from a typed `jraph.GraphsTuple`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, Features, HeteroGraph
from jhgnn.graph.schema import Relation


@dataclasses.dataclass(frozen=True, eq=False)
class TypedGraphsTuple:
    """One flat `jraph.GraphsTuple` that says of every node and edge which type it has.

    All nodes stand in one index space, a block per node type in the order of `node_types`; edges stand in blocks per
    relation, receivers ascending within. So jraph's own functions (batch, pad, segment softmax, message passing) work
    on `graph` as they are, while features, whose widths differ by type, stay a matrix per type.

    Attributes:
        graph: one graph. `nodes` holds `type` int32 `[num_nodes]` and, where known, `label` (int32 `[num_nodes]`, -1:
            none; uint8 `[num_nodes, num_classes]` if multi-label) and `split` (int8 `[num_nodes]`, index into train,
            val, test; -1: none). `edges` holds `type` int32 `[num_edges]` and, where some relation has weights,
            `weight` float32 `[num_edges]`, 1 elsewhere. NumPy arrays.
        node_types: the name of each node type.
        relations: the name of each edge type.
        features: type -> float32 `[nodes of the type, width]`, dense or CSR; a type without features is absent.
        target: the labelled type, or None.
        num_classes: None: from the labels.
        weighted: the relations whose weights count; None: all, where `edges` has weights.
        name: of the graph.
    """

    graph: Any
    node_types: tuple[str, ...]
    relations: tuple[Relation, ...]
    features: Mapping[str, Features] = dataclasses.field(default_factory=dict)
    target: str | None = None
    num_classes: int | None = None
    weighted: tuple[Relation, ...] | None = None
    name: str = "graph"

    def node_range(self, node_type: str) -> tuple[int, int]:
        """First flat node id of a type, and the one after its last."""
        start, stop = np.searchsorted(
            np.asarray(self.graph.nodes["type"]),
            [self.node_types.index(node_type), self.node_types.index(node_type) + 1],
        )
        return int(start), int(stop)


def to_jraph(graph: HeteroGraph) -> TypedGraphsTuple:
    """The heterograph as a typed `jraph.GraphsTuple`; features are shared, not copied.

    Raises:
        InputError: jraph is not installed, or there are 2**31 nodes or edges in total.
    """
    jraph = _jraph("to_jraph")
    num_nodes, num_edges = sum(graph.num_nodes.values()), graph.num_edges
    if max(num_nodes, num_edges) >= 2**31:
        raise InputError(f"graph {graph.name!r} has {num_nodes:,} nodes and {num_edges:,} edges; jraph counts in int32")
    counts = [graph.num_nodes[node_type] for node_type in graph.schema.node_types]
    start = dict(zip(graph.schema.node_types, np.cumsum([0, *counts]).tolist(), strict=False))
    nodes: dict[str, np.ndarray] = {"type": np.repeat(np.arange(len(counts), dtype=np.int32), counts)}
    if graph.target is not None:
        rows = slice(start[graph.target], start[graph.target] + graph.num_nodes[graph.target])
        if graph.labels is not None:
            fill = 0 if graph.multi_label else -1
            nodes["label"] = np.full((num_nodes, *graph.labels.shape[1:]), fill, graph.labels.dtype)
            nodes["label"][rows] = graph.labels
        if graph.splits:
            nodes["split"] = np.full(num_nodes, -1, np.int8)
            for split, ids in graph.splits.items():
                nodes["split"][rows.start + ids] = SPLITS.index(split)
    relations, edge_sets = graph.schema.relations, [graph.edges[relation] for relation in graph.schema.relations]
    sizes = [edge_set.num_edges for edge_set in edge_sets]
    edges: dict[str, np.ndarray] = {"type": np.repeat(np.arange(len(relations), dtype=np.int32), sizes)}
    weighted = tuple(r for r, edge_set in zip(relations, edge_sets, strict=True) if edge_set.weights is not None)
    if weighted:
        edges["weight"] = _joined(
            [_weights(edge_set.weights, edge_set.num_edges) for edge_set in edge_sets], np.float32
        )
    flat = jraph.GraphsTuple(
        nodes=nodes,
        edges=edges,
        senders=_joined([e.senders + start[r.source] for r, e in zip(relations, edge_sets, strict=True)], np.int32),
        receivers=_joined([e.receivers + start[r.target] for r, e in zip(relations, edge_sets, strict=True)], np.int32),
        globals=None,
        n_node=np.array([num_nodes], np.int32),
        n_edge=np.array([num_edges], np.int32),
    )
    return TypedGraphsTuple(
        graph=flat,
        node_types=graph.schema.node_types,
        relations=relations,
        features=graph.features,
        target=graph.target,
        num_classes=graph.num_classes if graph.labels is not None else None,
        weighted=weighted,
        name=graph.name,
    )


def from_jraph(typed: TypedGraphsTuple) -> HeteroGraph:
    """The heterograph of a typed `jraph.GraphsTuple`; undoes `to_jraph` exactly. Edges may stand in any order.

    Raises:
        InputError: several graphs in the tuple (batched or padded), nodes that are not in blocks by type, an unknown
            type, an edge whose ends are not of its relation's types, or what `HeteroGraph.from_arrays` refuses.
    """
    flat = typed.graph
    where = f"typed GraphsTuple {typed.name!r}"
    if len(flat.n_node) != 1:
        raise InputError(f"{where} holds {len(flat.n_node)} graphs; need one: unpad and unbatch it first")
    num_nodes = int(flat.n_node[0])
    kinds = _types(flat.nodes, num_nodes, len(typed.node_types), f"{where}: nodes")
    if (kinds[1:] < kinds[:-1]).any():
        raise InputError(f"{where}: node types are not in ascending blocks; sort the nodes by type")
    bounds = np.searchsorted(kinds, np.arange(len(typed.node_types) + 1))
    start = dict(zip(typed.node_types, bounds.tolist(), strict=False))
    counts = dict(zip(typed.node_types, np.diff(bounds).tolist(), strict=True))
    edge_kinds = _types(flat.edges, int(flat.n_edge[0]), len(typed.relations), f"{where}: edges")
    senders, receivers = np.asarray(flat.senders, np.int64), np.asarray(flat.receivers, np.int64)
    for ids, what in ((senders, "senders"), (receivers, "receivers")):
        if ids.shape != edge_kinds.shape:
            raise InputError(f"{where}: {what} have shape {ids.shape}; need {edge_kinds.shape}, as n_edge says")
    weights = flat.edges.get("weight") if typed.weighted is None or typed.weighted else None
    edges: dict[Relation | tuple[str, str, str], tuple[np.ndarray, ...]] = {}
    for kind, relation in enumerate(typed.relations):
        for node_type in (relation.source, relation.target):
            if node_type not in start:
                raise InputError(f"{where}: relation {str(relation)!r} ends at the unknown node type {node_type!r}")
        mask = edge_kinds == kind
        arrays: tuple[np.ndarray, ...] = (
            senders[mask] - start[relation.source],
            receivers[mask] - start[relation.target],
        )
        if weights is not None and (typed.weighted is None or relation in typed.weighted):
            arrays = (*arrays, np.asarray(weights)[mask])
        edges[relation] = arrays
    labels, splits = None, {}
    if typed.target is not None and typed.target in start:
        rows = slice(start[typed.target], start[typed.target] + counts[typed.target])
        if "label" in flat.nodes:
            labels = np.asarray(flat.nodes["label"])[rows]
        if "split" in flat.nodes:
            membership = np.asarray(flat.nodes["split"])[rows]
            members = {split: np.flatnonzero(membership == code) for code, split in enumerate(SPLITS)}
            splits = {split: ids for split, ids in members.items() if len(ids)}
    return HeteroGraph.from_arrays(
        num_nodes=counts,
        edges=edges,
        features=typed.features,
        target=typed.target,
        labels=labels,
        num_classes=typed.num_classes if labels is not None else None,
        splits=splits,
        name=typed.name,
        where=where,
    )


def _jraph(caller: str) -> Any:
    try:
        import jraph
    except ImportError as error:
        raise InputError(f"{caller} needs jraph, which cannot be imported ({error}): pip install jraph") from error
    return jraph


def _types(attributes: Any, count: int, num_types: int, what: str) -> np.ndarray:
    if not isinstance(attributes, Mapping) or "type" not in attributes:
        raise InputError(f"{what} have no 'type' array; need a dict with the type index of each")
    kinds = np.asarray(attributes["type"])
    if kinds.shape != (count,):
        raise InputError(f"{what}: 'type' has shape {kinds.shape}; need ({count},)")
    if kinds.size and (kinds.min() < 0 or kinds.max() >= num_types):
        raise InputError(f"{what}: type {int(kinds.max())} is out of range; {num_types} types are named")
    return kinds


def _weights(weights: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, np.float32) if weights is None else weights


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)
