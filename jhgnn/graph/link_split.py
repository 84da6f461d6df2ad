"""Link splits: which edges of a heterograph are to be predicted, and the graph that may be seen while doing so.

A held-out edge must not be read by message passing in any guise, so it leaves the graph together with its parallel
edges and with the edges that say the same backwards.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, EdgeSet, HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation

HELD_OUT = ("val", "test")


def link_split(
    graph: HeteroGraph, relations: Sequence[str], *, val_share: float, test_share: float, seed: int
) -> LinkTriples:
    """The edges to predict: those that the data set comes with, or a split drawn over the named relations' edges.

    Training triples that are held out as well, in either direction of a symmetric relation, are left out.

    Args:
        graph: with all edges, the held-out ones included.
        relations: names, or `source:name:target`; empty takes those of the data set's own split.
        val_share, test_share: of the edges, where a split is drawn; at least one edge each unless 0.
        seed: of the draw.

    Raises:
        InputError: there is no split and no relation is named; a relation is unknown; too few edges.
    """
    if graph.links is not None:
        split = _of_relations(graph.links, relations, graph) if relations else graph.links
    else:
        if not relations:
            known = ", ".join(str(relation) for relation in list(graph.schema.relations)[:20])
            raise InputError(
                f"graph {graph.name!r} has no link split: name the relation in task.relations; known: {known}"
            )
        named = tuple(_relation(graph, text) for text in relations)
        split = _drawn(graph, named, val_share, test_share, seed)
    split = _without_held_out(graph, split)
    for name in ("train", "test"):
        if len(split.triples.get(name, ())) == 0:
            raise InputError(
                f"graph {graph.name!r}: the {name} split of links is empty; there must be some edges in it"
            )
    return split


def message_graph(graph: HeteroGraph, split: LinkTriples) -> HeteroGraph:
    """The graph without the validation and test edges, their parallel edges and their reverses; no link split.

    A reverse is found where a relation holds exactly the edges of another backwards, or those of its own (symmetric).
    Add reverse relations after this, not before, or they are found in the same way.
    """
    held_out = np.concatenate([split.triples.get(name, np.zeros((0, 3), np.int32)) for name in HELD_OUT])
    edges = dict(graph.edges)
    for number, relation in enumerate(split.relations):
        own = held_out[held_out[:, 1] == number]
        edges[relation] = _without(edges[relation], own[:, 0], own[:, 2])
        for reverse in reverses(graph, relation):
            edges[reverse] = _without(edges[reverse], own[:, 2], own[:, 0])
    return dataclasses.replace(graph, edges=edges, links=None)


def reverses(graph: HeteroGraph, relation: Relation) -> list[Relation]:
    """Relations that hold the edges of another one backwards; a symmetric relation is its own."""
    own, num_sources = graph.edges[relation], graph.num_nodes[relation.source]
    between = graph.schema.relations_between(relation.target, relation.source)
    candidates = [other for other in between if graph.edges[other].num_edges == own.num_edges]
    if not candidates:
        return []
    # Degrees first: hundreds of relations are ruled out before their edges are sorted.
    out_degrees = np.bincount(own.senders, minlength=num_sources)
    candidates = [other for other in candidates if np.array_equal(np.diff(graph.edges[other].indptr), out_degrees)]
    if not candidates:
        return []
    backwards = own.reversed(num_sources)
    return [other for other in candidates if graph.edges[other].joins_as(backwards)]


def edge_positions(edges: EdgeSet, senders: np.ndarray, receivers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where pairs `[n]` stand among the edges, parallel ones included: (number of the pair, position of the edge)."""
    packed = _packed(edges.senders, edges.receivers)  # ascending: by receiver, then by sender
    wanted = _packed(senders, receivers)
    first, last = np.searchsorted(packed, wanted, side="left"), np.searchsorted(packed, wanted, side="right")
    counts = last - first
    pairs = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return pairs, np.repeat(first, counts) + within


def _relation(graph: HeteroGraph, text: str) -> Relation:
    found = [relation for relation in graph.schema.relations if text in (relation.name, str(relation))]
    if len(found) != 1:
        known = ", ".join(str(relation) for relation in list(graph.schema.relations)[:20])
        what = "is unknown" if not found else f"is the name of {len(found)}: write source:name:target"
        raise InputError(f"task.relations: {text!r} {what}; known: {known}")
    return found[0]


def _of_relations(split: LinkTriples, relations: Sequence[str], graph: HeteroGraph) -> LinkTriples:
    chosen = [_relation(graph, text) for text in relations]
    for relation in chosen:
        if relation not in split.relations:
            raise InputError(f"task.relations: {str(relation)!r} has no links in the split of {graph.name!r}")
    return split.of_relations(chosen)


def _drawn(
    graph: HeteroGraph, relations: Sequence[Relation], val_share: float, test_share: float, seed: int
) -> LinkTriples:
    rows = []
    for number, relation in enumerate(relations):
        packed = np.unique(_packed(graph.edges[relation].senders, graph.edges[relation].receivers))
        heads, tails = packed & 0xFFFFFFFF, packed >> 32
        if relation in reverses(graph, relation):  # both directions are one link
            heads, tails = heads[heads <= tails], tails[heads <= tails]
        rows.append(np.stack([heads, np.full(len(heads), number), tails], axis=1))
    triples = np.concatenate(rows).astype(np.int32)
    counts = [max(1, int(share * len(triples))) if share else 0 for share in (val_share, test_share)]
    if sum(counts) >= len(triples):
        raise InputError(f"task.relations hold {len(triples)} links; too few to hold out {sum(counts)} of them")
    order = np.random.default_rng(seed).permutation(len(triples))
    borders = np.cumsum(counts)
    parts = {"val": order[: borders[0]], "test": order[borders[0] : borders[1]], "train": order[borders[1] :]}
    return LinkTriples(tuple(relations), {name: triples[np.sort(parts[name])] for name in SPLITS})


def _without_held_out(graph: HeteroGraph, split: LinkTriples) -> LinkTriples:
    empty = np.zeros((0, 3), np.int32)
    train, val, test = (split.triples.get(name, empty) for name in SPLITS)
    for number, relation in enumerate(split.relations):
        symmetric = relation in reverses(graph, relation)
        test_pairs = _pairs(test, number, symmetric)
        val = val[(val[:, 1] != number) | ~np.isin(_packed(val[:, 0], val[:, 2]), test_pairs)]
        held_out = np.concatenate([test_pairs, _pairs(val, number, symmetric)])
        train = train[(train[:, 1] != number) | ~np.isin(_packed(train[:, 0], train[:, 2]), held_out)]
    return LinkTriples(split.relations, {"train": train, "val": val, "test": test})


def _pairs(triples: np.ndarray, number: int, symmetric: bool) -> np.ndarray:
    own = triples[triples[:, 1] == number]
    forwards = _packed(own[:, 0], own[:, 2])
    return np.concatenate([forwards, _packed(own[:, 2], own[:, 0])]) if symmetric else forwards


def _without(edges: EdgeSet, senders: np.ndarray, receivers: np.ndarray) -> EdgeSet:
    return edges.chosen(~np.isin(_packed(edges.senders, edges.receivers), _packed(senders, receivers)))


def _packed(senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    return np.asarray(receivers, np.int64) << 32 | np.asarray(senders, np.int64)
