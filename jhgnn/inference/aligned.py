"""Another graph as a trained model reads it: types, relations, features and classes of the graph it was trained on."""

import dataclasses

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.array_checks import key_index
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.schema import Relation, Schema
from jhgnn.graph.texts import Texts
from jhgnn.inference.trained_on import TrainedOn


def aligned(
    graph: HeteroGraph, trained: TrainedOn, *, one_hot: bool = False, edge_features: bool = False
) -> HeteroGraph:
    """The graph with exactly the types and relations of training, in their order; those that it lacks are empty.

    Relations that training had backwards are made where the graph has them forwards alone. Labels and splits stay where
    they are of the trained target and its classes; without labels every node is unlabelled.

    Args:
        graph: as read.
        trained: what was trained on.
        one_hot: whether the recipe gave types without features a column a node (`data.one_hot`).
        edge_features: whether the model reads the features of edges, which then have the widths of training.

    Raises:
        InputError: a type's features are missing, of another width, or made from tables by other categories or scales;
            there are edges of a relation that was not trained; no node of the target type; other classes.
    """
    where = f"graph {graph.name!r}"
    if not graph.num_nodes.get(trained.target):
        raise InputError(f"{where} has no nodes of type {trained.target!r}, which this run classifies")
    counts = {name: graph.num_nodes.get(name, 0) for name in trained.num_nodes}
    _check_relations(graph, trained, where)
    edges = {relation: _edges(graph, relation, counts) for relation in trained.relations}
    if edge_features:
        _check_edge_columns(graph, trained, where)
        edges = {each: _with_width(own, trained.edge_widths.get(str(each)), each, where) for each, own in edges.items()}
    features = {name: _features(graph, trained, name, counts[name], one_hot, where) for name in trained.widths}
    for name, count in counts.items():
        if count and name not in trained.widths and name in graph.features:
            raise InputError(
                f"{where}: {name!r} has features, but training had none and learnt a row for each node; leave them out"
            )
    labels, splits = _labels(graph, trained, counts[trained.target], where)
    return dataclasses.replace(
        graph,
        schema=Schema(tuple(counts), trained.relations),
        num_nodes=counts,
        features=features,
        edges=edges,
        target=trained.target,
        labels=labels,
        num_classes=trained.num_classes,
        splits=splits,
        links=None,
        keys={name: keys for name, keys in graph.keys.items() if name in counts},
        node_times={name: times for name, times in graph.node_times.items() if name in counts},
        class_names=trained.class_names,
        columns={name: trained.columns[name] for name in trained.columns},
        edge_columns=dict(trained.edge_columns),
    )


def known_rows(graph: HeteroGraph, trained: TrainedOn, node_type: str) -> np.ndarray:
    """Which node of training each node of a type is, int32 `[num_nodes]`, -1 for a new one.

    By keys where training had them, else by position: a graph that has grown has its new nodes behind the old ones.

    Raises:
        InputError: keys are missing, or by position there are fewer nodes than there were.
    """
    count, before = graph.num_nodes[node_type], trained.num_nodes[node_type]
    if node_type in trained.keys:
        if not count:
            return np.zeros(0, np.int32)
        if node_type not in graph.keys:
            raise InputError(
                f"graph {graph.name!r}: nodes of {node_type!r} have no keys, by which training knew them; give them"
            )
        own = graph.keys[node_type]
        index = key_index(trained.keys[node_type])
        return index.find(own) if own.dtype.kind == "i" else index.find(_texts(own))
    if 0 < count < before:
        raise InputError(
            f"graph {graph.name!r} has {count:,} nodes of {node_type!r}, training had {before:,}: without keys a node"
            " is known by its position, so old nodes must stay; give the nodes keys"
        )
    known = np.arange(count, dtype=np.int32)
    known[before:] = -1
    return known


def _texts(keys: np.ndarray) -> Texts:
    return Texts.from_strings(keys.tolist())


def _check_relations(graph: HeteroGraph, trained: TrainedOn, where: str) -> None:
    for relation, own in graph.edges.items():
        back = relation.reversed()
        only_way = back in trained.relations and back not in graph.edges
        if own.num_edges and relation not in trained.relations and not only_way:
            had = ", ".join(map(str, trained.relations))
            raise InputError(
                f"{where}: relation {str(relation)!r} has edges, but no weights, since training did not have it; leave"
                f" it out, or train with it (training had {had})"
            )


def _edges(graph: HeteroGraph, relation: Relation, counts: dict[str, int]) -> EdgeSet:
    if relation in graph.edges:
        return graph.edges[relation]
    back = graph.edges.get(relation.reversed())
    if back is not None:
        return back.reversed(counts[relation.target])
    return EdgeSet(np.zeros(counts[relation.target] + 1, np.int64), np.zeros(0, np.int32))


def _check_edge_columns(graph: HeteroGraph, trained: TrainedOn, where: str) -> None:
    for name, theirs in trained.edge_columns.items():
        ours = graph.edge_columns.get(name, ())
        for own, other in zip(ours, theirs, strict=False):
            if own != other:
                raise InputError(
                    f"{where}: feature {own.name!r} of the edges of {name!r} became numbers by other categories or"
                    " scales than in training; read its tables as data.format = 'tables', or by from_tables(...,"
                    " like=run.trained_on)"
                )


def _with_width(edges: EdgeSet, width: int | None, relation: Relation, where: str) -> EdgeSet:
    """The edges with features of the width that training had, and without where it had none."""
    if width is None or not edges.num_edges:
        empty = None if width is None else np.zeros((0, width), np.float32)
        return dataclasses.replace(edges, features=empty)
    found = 0 if edges.features is None else edges.features.shape[1]
    if found != width:
        raise InputError(f"{where}: edges of {str(relation)!r} have {found} columns of features; training had {width}")
    return edges


def _features(graph: HeteroGraph, trained: TrainedOn, name: str, count: int, one_hot: bool, where: str) -> Features:
    width = trained.widths[name]
    if not count:
        return np.zeros((0, width), np.float32)
    if name not in graph.features:
        if not one_hot or width != trained.num_nodes[name]:
            raise InputError(f"{where}: {name!r} has no features, but training had {width} columns of them")
        known = known_rows(graph, trained, name)
        if (known < 0).any():
            key = graph.node_keys(name, np.flatnonzero(known < 0)[:1])[0]
            raise InputError(
                f"{where}: {str(key)!r} of {name!r} is new, but with data.one_hot training gave each node a column of"
                " its own; train without data.one_hot"
            )
        ones = np.ones(count, np.float32)
        return sparse.csr_array((ones, known, np.arange(count + 1)), shape=(count, width))
    matrix = graph.features[name]
    if matrix.shape[1] != width:
        raise InputError(f"{where}: features of {name!r} have {matrix.shape[1]} columns; training had {width}")
    ours, theirs = graph.columns.get(name, ()), trained.columns.get(name, ())
    if ours and theirs:
        for own, other in zip(ours, theirs, strict=False):
            if own != other:
                raise InputError(
                    f"{where}: feature {own.name!r} of {name!r} became numbers by other categories or scales than in"
                    " training; read its tables as data.format = 'tables', or by from_tables(..., like=run.trained_on)"
                )
    return matrix


def _labels(graph: HeteroGraph, trained: TrainedOn, count: int, where: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    if graph.labels is None or graph.target != trained.target:
        if trained.multi_label:
            return np.zeros((count, trained.num_classes), np.uint8), {}
        return np.full(count, -1, np.int32), {}
    if graph.multi_label != trained.multi_label:
        kinds = ["several classes" if each else "one class" for each in (graph.multi_label, trained.multi_label)]
        raise InputError(f"{where}: its nodes have {kinds[0]} each, those of training {kinds[1]}")
    if graph.class_names and trained.class_names and tuple(graph.class_names) != trained.class_names:
        raise InputError(
            f"{where}: its classes are {', '.join(graph.class_names)}; those of training"
            f" {', '.join(trained.class_names)}"
        )
    found = graph.labels.shape[1] if graph.multi_label else int(graph.labels.max(initial=-1)) + 1
    if found > trained.num_classes or (graph.multi_label and found != trained.num_classes):
        raise InputError(f"{where} has {found} classes; training had {trained.num_classes}")
    return graph.labels, dict(graph.splits)
