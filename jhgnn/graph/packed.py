"""PackedGraphs: all semantic graphs of a layer as one, so that one kernel call aggregates along all of them.

A vertex of the packed graph is a slot: a node as the sender, or as a receiver, of one of the graphs. Only nodes that
have an edge there get one. AIFB's 90 relations have 8,285 nodes each and 58,086 edges in all: 26,425 slots send, where
a projection of every node for every relation makes 745,650 rows.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.row_groups import FeatureGroups, RowGroups, row_groups
from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

NAME = "packed"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PackedSide:
    """One end of the packed edges: slots by node type, one type's after the other's.

    Attributes:
        groups: of each node type, its rows grouped by semantic graph.
        names: of each node type, the semantic graphs in the order of its groups.
        ids: int32 `[slots]`, the node of each slot, by its number in the whole graph.
        number: int32 `[slots]`, which of all names, joined in the types' order, a slot belongs to.
    """

    groups: dict[str, RowGroups]
    names: tuple[tuple[str, tuple[str, ...]], ...] = dataclasses.field(metadata={"static": True})
    ids: Array
    number: Array

    @property
    def joined_names(self) -> tuple[str, ...]:
        return tuple(name for _, own in self.names for name in own)

    @property
    def num_slots(self) -> int:
        return int(self.ids.shape[0])

    def with_views(self, views: Collection[str], feature_views: Collection[str]) -> "PackedSide":
        groups = {node_type: own.with_views(views, feature_views) for node_type, own in self.groups.items()}
        return dataclasses.replace(self, groups=groups)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PackedGraphs:
    """The semantic graphs of one layer.

    Attributes:
        senders: slots that send.
        receivers: slots that receive; of means none, whose edges lead to rows.
        graph: from senders' slots to receivers' slots; of means to the rows made, type after type.
        into_rows: from receivers' slots to the rows made; of means None.
        degrees: of means int32 `[num_edges]` in the order of `graph.incoming`: how many edges of the same semantic
            graph the receiver has, by which a message is divided; else None.
        made: node type -> rows made, in the order in which rows are joined.
        aggregation: the implementation of neighbor attention; of means none.
        summing: the implementation of `neighbor_sum`, for sums and for gradients.
    """

    senders: PackedSide
    receivers: PackedSide | None
    graph: SemanticGraph
    into_rows: SemanticGraph | None
    degrees: Array | None
    made: FrozenCounts = dataclasses.field(metadata={"static": True})
    aggregation: str = dataclasses.field(default="", metadata={"static": True})
    summing: str = dataclasses.field(default="", metadata={"static": True})

    @property
    def num_slots(self) -> int:
        return self.senders.num_slots + (0 if self.receivers is None else self.receivers.num_slots)

    def place(
        self,
        aggregation: str,
        summing: str,
        views: Callable[[str, str], Collection[str]],
        sparse_implementation: str,
        device: jax.Device | None = None,
    ) -> "PackedGraphs":
        """On a device, with what these implementations read; `views(op, implementation)` as `OP.views` gives them."""
        sums = views("neighbor_sum", summing)
        features = views("sparse_matmul", sparse_implementation)
        placed = dataclasses.replace(
            self,
            senders=self.senders.with_views(sums, features),
            receivers=None if self.receivers is None else self.receivers.with_views(sums, features),
            graph=self.graph.with_views(views("neighbor_attention", aggregation) if self.receivers else sums),
            into_rows=None if self.into_rows is None else self.into_rows.with_views(sums),
            aggregation=aggregation,
            summing=summing,
        )
        return jax.device_put(placed, device)


def pack_means(
    graphs: Mapping[str, SemanticGraph],
    relations: Mapping[str, Relation],
    read: Mapping[str, int],
    made: Mapping[str, int],
    features: Mapping[str, Any] | None = None,
    by_bases: Mapping[str, int] | None = None,
) -> PackedGraphs:
    """Packs graphs along which means are taken, on the host.

    Args:
        graphs: by name; at least one. Those that know their vertices' ids in a whole graph keep them.
        relations: of each name.
        read: node type -> rows that the layer reads; those that it makes are the first of them.
        made: node type -> rows that it makes.
        features: the SciPy matrix of each source type whose rows are sparse.
        by_bases: those of them whose slots are `OneHotSlots`, and how many rows of their own follow.
    """
    senders, slot_of = _side(graphs, relations, read, receiving=False, features=features or {}, by_bases=by_bases or {})
    first = _offsets(made)
    edges, degrees = [], []
    for name, graph in graphs.items():
        receivers = _receivers(graph)
        edges.append((slot_of[name][graph.incoming.indices], first[relations[name].target] + receivers))
        degrees.append(np.diff(graph.incoming.indptr)[receivers])
    from_slots, to_rows = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    order = np.lexsort((from_slots, to_rows))
    graph = SemanticGraph.from_pairs(from_slots, to_rows, senders.num_slots, sum(made.values()), NAME)
    joined = np.concatenate(degrees)[order].astype(np.int32)
    return PackedGraphs(senders, None, graph, None, joined, FrozenCounts.of(made))


def pack_attention(
    graphs: Mapping[str, SemanticGraph],
    relations: Mapping[str, Relation],
    read: Mapping[str, int],
    made: Mapping[str, int],
    features: Mapping[str, Any] | None = None,
) -> PackedGraphs:
    """Packs graphs along which attention is computed; as `pack_means`."""
    senders, sender_slot = _side(graphs, relations, read, receiving=False, features=features or {}, by_bases={})
    receivers, receiver_slot = _side(graphs, relations, read, receiving=True, features=features or {}, by_bases={})
    first = _offsets(made)
    edges, sums = [], []
    for name, graph in graphs.items():
        slots = receiver_slot[name]
        edges.append((sender_slot[name][graph.incoming.indices], slots[_receivers(graph)]))
        there = np.flatnonzero(np.diff(graph.incoming.indptr))
        sums.append((slots[there], first[relations[name].target] + there))
    from_slots, to_slots = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    made_of, to_rows = (np.concatenate(ends) for ends in zip(*sums, strict=True))
    return PackedGraphs(
        senders=senders,
        receivers=receivers,
        graph=SemanticGraph.from_pairs(from_slots, to_slots, senders.num_slots, receivers.num_slots, NAME),
        into_rows=SemanticGraph.from_pairs(made_of, to_rows, receivers.num_slots, sum(made.values()), NAME),
        degrees=None,
        made=FrozenCounts.of(made),
    )


def _side(
    graphs: Mapping[str, SemanticGraph],
    relations: Mapping[str, Relation],
    read: Mapping[str, int],
    *,
    receiving: bool,
    features: Mapping[str, Any],
    by_bases: Mapping[str, int],
) -> tuple[PackedSide, dict[str, np.ndarray]]:
    """One end of all graphs' edges, and for each graph the slot of each of its nodes there, -1 without edges."""
    by_type: dict[str, list[str]] = {}
    for name in graphs:
        relation = relations[name]
        by_type.setdefault(relation.target if receiving else relation.source, []).append(name)
    groups, slot_of, ids, numbers = {}, {}, [], []
    slots_before = names_before = 0
    for node_type, names in sorted(by_type.items()):
        # Relations from another type stand last: R-GAT projects their receivers by matrices of their own.
        names.sort(key=lambda name: receiving and relations[name].source != node_type)
        whole = graphs[names[0]]
        ends = [graphs[name].incoming if receiving else graphs[name].outgoing for name in names]
        there = [np.flatnonzero(np.diff(end.indptr)).astype(np.int32) for end in ends]
        own, slots = row_groups(there, read[node_type], NAME)
        matrices = np.repeat(own.matrix_of_tile, own.num_slots // max(1, own.num_tiles))
        if node_type in by_bases:
            held = np.where(own.used, own.rows, -1)
            one_hot = OneHotSlots.of(held, matrices, features[node_type], by_bases[node_type], len(names))
            own = dataclasses.replace(own, features=one_hot)
        elif node_type in features:
            own = dataclasses.replace(own, features=FeatureGroups.of(own, features[node_type]))
        groups[node_type] = own
        for name, rows, places in zip(names, there, slots, strict=True):
            slot_of[name] = np.full(read[node_type], -1, np.int64)
            slot_of[name][rows] = slots_before + places
        known = whole.receiver_ids if receiving else whole.sender_ids
        ids.append(own.rows if known is None else known[own.rows])
        numbers.append(names_before + matrices)
        slots_before, names_before = slots_before + own.num_slots, names_before + len(names)
    side = PackedSide(
        groups=groups,
        names=tuple((node_type, tuple(names)) for node_type, names in sorted(by_type.items())),
        ids=_joined(ids),
        number=_joined(numbers),
    )
    return side, slot_of


def _offsets(made: Mapping[str, int]) -> dict[str, int]:
    """Where each type's rows begin among all that are made."""
    offsets, before = {}, 0
    for node_type, count in made.items():
        offsets[node_type], before = before, before + count
    return offsets


def _receivers(graph: SemanticGraph) -> np.ndarray:
    return np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays).astype(np.int32) if arrays else np.zeros(0, np.int32)
