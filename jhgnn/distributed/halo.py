"""A whole graph cut over places by vertices: each place's edges, and the rows of other places that they read.

A place numbers the rows of a type like this: first its own, as many as the place with most has and one spare; then the
halo, a block of one capacity for each place that rows come from. Padding edges go from the spare row to the spare row.
"""

import dataclasses
from collections.abc import Collection, Mapping

import jax
import numpy as np

from jhgnn.distributed.placement import Placement
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph

VIEWS = ("coo",)
"""Those of the implementation `segment`, whose arrays have one shape for all places."""


@dataclasses.dataclass(frozen=True, eq=False)
class HaloPlan:
    """What some places hold, with an axis over them in front.

    Attributes:
        graphs: name -> `SemanticGraph` with leaves `[places, ...]`.
        ids: node type -> int32 `[places, rows + all places * capacity]`, in the whole graph, -1 for padding.
        asked: node type -> int32 `[places, all places, capacity]`, rows that each other place has in its halo.
        halo: node type -> rows in the halos of all places together.
    """

    graphs: Mapping[str, SemanticGraph]
    ids: Mapping[str, np.ndarray]
    asked: Mapping[str, np.ndarray]
    halo: Mapping[str, int]


def plan_halo(
    graphs: Mapping[str, SemanticGraph],
    relations: Mapping[str, Relation],
    placement: Placement,
    places: range,
    node_types: Collection[str] = (),
) -> HaloPlan:
    """Cuts the edges of whole graphs, each to the place of its receiver.

    Args:
        graphs: name -> whole graph, on the host.
        relations: name -> its types.
        placement: with a spare row a type.
        places: those whose shares are wanted.
        node_types: to number the rows of, beside those that the relations join.
    """
    node_types = sorted({*node_types, *(end for each in relations.values() for end in (each.source, each.target))})
    ends = {name: _ends(graph, relations[name], placement) for name, graph in graphs.items()}
    asked, ids, halo, keys, capacities = {}, {}, {}, {}, {}
    for node_type in node_types:
        sent = [(graphs[name], *ends[name]) for name in graphs if relations[name].source == node_type]
        asked[node_type], keys[node_type] = _halo_of(node_type, sent, placement)
        halo[node_type], capacities[node_type] = len(keys[node_type]), asked[node_type].shape[2]
        by_place = placement.ids(node_type, range(placement.num_places))
        came = np.full(asked[node_type].shape, -1, np.int32)
        for place in range(placement.num_places):
            rows = asked[node_type][place]
            came[place] = np.where(rows >= 0, by_place[place][np.maximum(rows, 0)], -1)
        # What place q got from p is what p was asked for by q.
        behind = came.transpose(1, 0, 2).reshape(placement.num_places, -1)
        ids[node_type] = np.concatenate([by_place, behind], axis=1)[places.start : places.stop]
        asked[node_type] = asked[node_type][places.start : places.stop]
    cut = {}
    for name, graph in graphs.items():
        source, target = relations[name].source, relations[name].target
        receivers, to_place = ends[name]
        senders = _local_senders(graph, source, to_place, keys[source], capacities[source], placement)
        most = int(np.bincount(to_place, minlength=placement.num_places).max(initial=0))
        num_sources = placement.rows[source] + placement.num_places * capacities[source]
        shares = []
        for index, place in enumerate(places):
            mine = to_place == place
            padding = most - int(mine.sum())
            own = SemanticGraph.from_pairs(
                np.concatenate([senders[mine], np.full(padding, placement.rows[source] - 1)]),
                np.concatenate([receivers[mine], np.full(padding, placement.rows[target] - 1)]),
                num_sources,
                placement.rows[target],
                name,
            ).with_views(VIEWS)
            receiver_ids = ids[target][index][: placement.rows[target]]
            shares.append(dataclasses.replace(own, sender_ids=ids[source][index], receiver_ids=receiver_ids))
        cut[name] = jax.tree.map(lambda *leaves: np.stack(leaves), *shares)
    return HaloPlan(cut, ids, asked, halo)


def _ends(graph: SemanticGraph, relation: Relation, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    """The row of each edge's receiver at its place, and that place."""
    rows = placement.rows[relation.target]
    homes = placement.homes[relation.target][
        np.repeat(np.arange(graph.num_targets, dtype=np.int32), np.diff(graph.incoming.indptr))
    ]
    return homes % rows, homes // rows


def _remote_keys(
    graph: SemanticGraph, node_type: str, to_place: np.ndarray, placement: Placement
) -> tuple[np.ndarray, np.ndarray]:
    """For each edge whether its sender is at another place, and a number that orders (receiving place, home)."""
    homes, rows = placement.homes[node_type][graph.incoming.indices], placement.rows[node_type]
    size = placement.num_places * rows
    return homes // rows != to_place, to_place.astype(np.int64) * size + homes


def _halo_of(
    node_type: str, edges: "list[tuple[SemanticGraph, np.ndarray, np.ndarray]]", placement: Placement
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that places ask each other for, int32 `[asked place, asking place, capacity]`, and their ascending keys."""
    num_places, rows = placement.num_places, placement.rows[node_type]
    found = [np.zeros(0, np.int64)]
    for graph, _, to_place in edges:
        remote, key = _remote_keys(graph, node_type, to_place, placement)
        found.append(np.unique(key[remote]))
    keys = np.unique(np.concatenate(found))
    groups = keys // rows  # asking place * places + asked place
    counts = np.bincount(groups, minlength=num_places**2)
    capacity = int(counts.max(initial=0))
    asked = np.full((num_places**2, capacity), -1, np.int32)
    asked[groups, _positions(groups, counts)] = keys % rows
    return asked.reshape(num_places, num_places, capacity).transpose(1, 0, 2), keys


def _positions(groups: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Where each entry stands in its group; `groups` ascend."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(len(groups)) - starts[groups]


def _local_senders(
    graph: SemanticGraph, node_type: str, to_place: np.ndarray, keys: np.ndarray, capacity: int, placement: Placement
) -> np.ndarray:
    """The row of each edge's sender at the receiver's place: an own one, or one of the halo."""
    num_places, rows = placement.num_places, placement.rows[node_type]
    remote, key = _remote_keys(graph, node_type, to_place, placement)
    groups = keys // rows
    positions = _positions(groups, np.bincount(groups, minlength=num_places**2))
    homes = placement.homes[node_type][graph.incoming.indices]
    if not len(keys):
        return homes % rows
    at = np.searchsorted(keys, key)
    at = np.minimum(at, len(keys) - 1)
    return np.where(remote, rows + (homes // rows) * capacity + positions[at], homes % rows)
