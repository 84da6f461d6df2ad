"""From when on edges may be seen, and a graph as it was at a moment."""

import dataclasses

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation


def visible_from(graph: HeteroGraph, relation: Relation) -> np.ndarray | None:
    """The time from which each edge is visible, int64 `[num_edges]`: its own, or its sender's where that is later.

    None where neither edges nor senders have times.
    """
    edges, of_senders = graph.edges[relation], graph.node_times.get(relation.source)
    if of_senders is None:
        return edges.times
    found = of_senders[edges.senders]
    return found if edges.times is None else np.maximum(found, edges.times)


def until(graph: HeteroGraph, moment: int) -> HeteroGraph:
    """The graph without edges that are later than a moment, or that join a node which is; all nodes stay."""
    edges = {}
    for relation, own in graph.edges.items():
        keep = np.ones(own.num_edges, bool)
        if (times := visible_from(graph, relation)) is not None:
            keep &= times <= moment
        if relation.target in graph.node_times:
            keep &= graph.node_times[relation.target][own.receivers] <= moment
        edges[relation] = own if keep.all() else own.chosen(keep)
    return dataclasses.replace(graph, edges=edges)


def end_of_training(graph: HeteroGraph, split: LinkTriples) -> int:
    """The time of the last training link; of parallel edges the first one counts.

    Raises:
        InputError: links have no times, or some that are held out are not later.
    """
    latest, earliest = None, None
    for number, relation in enumerate(split.relations):
        edges = graph.edges[relation]
        if edges.times is None:
            raise InputError(f"task.until_training: edges of {str(relation)!r} have no times; name a column 'time'")
        packed = _packed(edges.senders, edges.receivers)  # ascending, parallel edges side by side
        starts = np.flatnonzero(np.concatenate([[True], packed[1:] != packed[:-1]])[: len(packed)])
        if not len(starts):
            continue
        pairs, first = packed[starts], np.minimum.reduceat(edges.times, starts)
        last = np.maximum.reduceat(edges.times, starts)
        for name, triples in split.triples.items():
            own = triples[triples[:, 1] == number]
            at = np.searchsorted(pairs, _packed(own[:, 0], own[:, 2]))
            if not len(at):
                continue
            if name == "train":
                latest = int(max(first[at].max(), first[at].max() if latest is None else latest))
            else:
                earliest = int(min(last[at].min(), last[at].min() if earliest is None else earliest))
    assert latest is not None  # a split without training links is refused before
    if earliest is not None and earliest <= latest:
        raise InputError(
            f"task.until_training: a link that is held out has time {earliest}, and training links go on until"
            f" {latest}; split the links by time ([links] in the schema of tables)"
        )
    return latest


def _packed(senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    return np.asarray(receivers, np.int64) << 32 | np.asarray(senders, np.int64)
