"""Attention flow: how much of a node's row comes along each edge, by the model's own attention.

A flow of 1 starts at the node. At each layer it is divided over the relations or metapaths into a node, by the semantic
attention of a model that has it, else evenly over those with edges; and over their edges by edge attention, the mean
over heads. It goes on from the senders. Self-loops carry none of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jhgnn.explaining.neighbourhood import Neighbourhood
from jhgnn.nn.observed import Shown


class AttentionFlow(NamedTuple):
    """What a model's attention says of a neighbourhood.

    Attributes:
        edges: float64 `[num_edges]`, the flow along each, over all layers.
        relations: float64 `[relations]`, that along each relation's edges.
        semantic: layer -> relation or metapath -> its semantic attention; empty for models without.
    """

    edges: np.ndarray
    relations: np.ndarray
    semantic: dict[int, dict[str, float]]


def attention_flow(field: Neighbourhood, shown: Sequence[Shown]) -> AttentionFlow | None:
    """The flow through a neighbourhood; None where the layers show no edge attention."""
    by_edge = {(each.layer, each.name): each.value for each in shown if each.kind == "edge attention"}
    if not by_edge:
        return None
    semantic: dict[int, dict[str, float]] = {}
    for each in shown:
        if each.kind == "semantic attention":
            semantic.setdefault(each.layer, {})[each.name] = float(each.value)
    edges = np.zeros(len(field.edges))
    flow = {field.target: np.zeros(len(field.rows[0][field.target]))}
    flow[field.target][0] = 1.0
    for hop, into in enumerate(field.hops):
        layer = len(field.plans) - 1 - hop
        plan = field.plans[layer]
        following = {name: np.zeros(len(ids)) for name, ids in field.rows[hop + 1].items()}
        shares = _shares(field, hop, semantic.get(layer))
        for name, own in into.items():
            relation = plan.relations[name]
            alpha = np.asarray(by_edge[layer, name], np.float64)[: len(own.edges)].mean(axis=1)
            along = flow[relation.target][own.receivers] * shares[name][own.receivers] * alpha
            np.add.at(edges, own.edges, along)
            np.add.at(following[relation.source], own.senders, along)
        flow = following
    relations = np.bincount(field.edges.relations, edges, minlength=len(field.edges.names))
    return AttentionFlow(edges, relations, semantic)


def _shares(field: Neighbourhood, hop: int, semantic: dict[str, float] | None) -> dict[str, np.ndarray]:
    """Relation -> `[rows]`, its part in each receiver's row."""
    plan = field.plans[len(field.plans) - 1 - hop]
    has: dict[str, np.ndarray] = {}
    counts = {name: np.zeros(len(ids)) for name, ids in field.rows[hop].items()}
    for name, own in field.hops[hop].items():
        target = plan.relations[name].target
        has[name] = np.zeros(len(counts[target]))
        has[name][own.receivers] = 1.0
        counts[target] += has[name]
    if semantic is not None:
        return {name: own * semantic.get(name, 0.0) for name, own in has.items()}
    return {name: own / np.maximum(counts[plan.relations[name].target], 1.0) for name, own in has.items()}
