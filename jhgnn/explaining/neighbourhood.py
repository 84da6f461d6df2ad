"""Neighbourhood: one node's receptive field as a model over relations or metapaths reads it, of padded shapes.

Hop 0 is the node, which the last layer makes; hop h + 1 is what the layer that makes hop h reads. All types have as
many rows at a hop, and all relations as many edges, rounded up to powers of four, so that few programs serve any node.
The last row of a type takes the edges of padding, and nothing reads it.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.sampled import PADDING, FrozenCounts
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.nn.inputs import FieldInputs
from jhgnn.nn.layer_plan import LayerPlan

SMALLEST = 4


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NeighbourhoodInputs(FieldInputs):
    """A field whose `features` hold the rows of every type, learnt ones among them."""

    def table_rows(self, table: jax.Array, node_type: str) -> jax.Array | None:
        """None: the table's rows are among the features."""
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class HopEdges:
    """A relation's edges into a hop's rows, int32 `[num_edges]` each, receivers ascending.

    Attributes:
        senders, receivers: rows of the hop before and of this one.
        edges: numbers among the neighbourhood's edges.
    """

    senders: np.ndarray
    receivers: np.ndarray
    edges: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Edges:
    """The distinct edges of a neighbourhood, `[num_edges]` each.

    Attributes:
        relations: int32, place of the relation in `names`.
        places: int64, among the relation's edges in the whole graph.
        senders, receivers: int32, in the whole graph.
        names: of the relations.
    """

    relations: np.ndarray
    places: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.places)

    def of(self, name: str) -> np.ndarray:
        """Which edges are of a relation, bool `[num_edges]`."""
        return np.asarray(self.relations == self.names.index(name))


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbourhood:
    """See the module.

    Attributes:
        target: the node's type.
        node: its number.
        plans: of the layers, in the order in which they run.
        rows: hop -> type -> int32 `[rows]`, the nodes of its rows in the whole graph, -1 for padding.
        hops: hop -> relation -> edges.
        edges: the distinct ones.
        room: hop -> edges of each relation after padding.
    """

    target: str
    node: int
    plans: tuple[LayerPlan, ...]
    rows: tuple[Mapping[str, np.ndarray], ...]
    hops: tuple[Mapping[str, HopEdges], ...]
    edges: Edges
    room: tuple[int, ...]

    @property
    def num_nodes(self) -> int:
        """Nodes whose input rows are read."""
        return sum(int((ids >= 0).sum()) for ids in self.rows[-1].values())

    @property
    def num_weights(self) -> int:
        """Length of an array with a number for each edge; the last one is that of padding."""
        return rounded(len(self.edges) + 1)

    def graphs(self, keep: np.ndarray | None = None) -> tuple[dict[str, SemanticGraph], ...]:
        """Hop -> relation -> its graph, on the host; with `keep`, bool `[num_edges]`, of some edges alone."""
        return tuple(
            {name: self._graph(hop, name, own, keep) for name, own in found.items()}
            for hop, found in enumerate(self.hops)
        )

    def numbers(self) -> tuple[dict[str, np.ndarray], ...]:
        """Hop -> relation -> int32 `[room]`, each edge's number in arrays of `num_weights`."""
        return tuple(
            {
                name: np.concatenate(
                    [own.edges, np.full(self.room[hop] - len(own.edges), self.num_weights - 1, np.int32)]
                )
                for name, own in found.items()
            }
            for hop, found in enumerate(self.hops)
        )

    def counts(self) -> tuple[FrozenCounts, ...]:
        """Hop -> rows of each type, with padding."""
        return tuple(FrozenCounts.of({name: len(ids) for name, ids in hop.items()}) for hop in self.rows)

    def _graph(self, hop: int, name: str, own: HopEdges, keep: np.ndarray | None) -> SemanticGraph:
        relation = self._plan(hop).relations[name]
        num_rows, num_sources = len(self.rows[hop][relation.target]), len(self.rows[hop + 1][relation.source])
        kept = np.ones(len(own.edges), bool) if keep is None else keep[own.edges]
        padding = self.room[hop] - int(kept.sum())
        receivers = np.concatenate([own.receivers[kept], np.full(padding, num_rows - 1, np.int32)])
        senders = np.concatenate([own.senders[kept], np.zeros(padding, np.int32)])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(receivers, minlength=num_rows))])
        return SemanticGraph.from_incoming(indptr, senders, num_sources, name).with_views(("coo",))

    def _plan(self, hop: int) -> LayerPlan:
        return self.plans[len(self.plans) - 1 - hop]


def neighbourhood_of(
    plans: Sequence[LayerPlan], edges: Mapping[str, EdgeSet], target: str, node: int, most_edges: int
) -> Neighbourhood:
    """Walks from a node against the edges, once a layer; costs what the field holds, not what the graph does.

    Args:
        plans: of the layers, in the order in which they run.
        edges: relation or metapath -> all its edges.
        target: the node's type.
        node: its number.
        most_edges: that the field may have, counted once a layer.

    Raises:
        InputError: it has more.
    """
    plans = tuple(plans)
    names = tuple(dict.fromkeys(name for plan in plans for name in plan.relations))
    ids: list[dict[str, np.ndarray]] = [{target: np.array([node], np.int32)}]
    found: list[dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
    total = 0
    for plan in reversed(plans):
        into = {}
        for name, relation in plan.relations.items():
            own = ids[-1].get(relation.target, np.zeros(0, np.int32))
            total += _num_in_edges(edges[name], own)
            if total > most_edges:
                raise InputError(
                    f"the receptive field of this {target} has over {most_edges:,} edges; raise --most-edges"
                    " (most_edges=), or explain a node of fewer neighbours"
                )
            into[name] = _in_edges(edges[name], own)
        read: dict[str, list[np.ndarray]] = {name: [ids[-1][name]] if name in ids[-1] else [] for name in plan.reads}
        for name, relation in plan.relations.items():
            read[relation.source].append(into[name][0])
        ids.append(
            {
                name: np.unique(np.concatenate(each)).astype(np.int32) if each else np.zeros(0, np.int32)
                for name, each in read.items()
            }
        )
        found.append(into)
    rows = _rows(ids)
    distinct = _Distinct(found, names, edges)
    hops = []
    for hop, into in enumerate(found):
        plan, made = plans[len(plans) - 1 - hop], {}
        for name, (senders, receivers, places) in into.items():
            relation = plan.relations[name]
            row_of = _Places(rows[hop][relation.target])
            own_rows = row_of(receivers)
            order = np.argsort(own_rows, kind="stable")
            numbers = distinct.number(name, places)
            made[name] = HopEdges(
                _Places(rows[hop + 1][relation.source])(senders)[order], own_rows[order], numbers[order]
            )
        hops.append(made)
    room = tuple(rounded(max((len(own.edges) for own in made.values()), default=0)) for made in hops)
    return Neighbourhood(target, int(node), plans, rows, tuple(hops), distinct.edges, room)


def rounded(count: int) -> int:
    """The next power of four from `SMALLEST` on."""
    size = SMALLEST
    while size < count:
        size *= 4
    return size


def _rows(ids: Sequence[Mapping[str, np.ndarray]]) -> tuple[dict[str, np.ndarray], ...]:
    """Hop -> type -> the nodes of its rows; those of a hop come first in the next, where the type is read there."""
    rows: list[dict[str, np.ndarray]] = []
    for hop in ids:
        found = {}
        for name, own in hop.items():
            first = rows[-1][name] if rows and name in rows[-1] else np.zeros(0, np.int32)
            found[name] = np.concatenate([first, np.setdiff1d(own, first)]).astype(np.int32)
        size = rounded(max(len(own) for own in found.values()) + 1)
        rows.append(
            {
                name: np.concatenate([own, np.full(size - len(own), PADDING, np.int32)]).astype(np.int32)
                for name, own in found.items()
            }
        )
    return tuple(rows)


class _Places:
    """Rows by node."""

    def __init__(self, rows: np.ndarray) -> None:
        own = np.flatnonzero(rows >= 0)
        self._order = own[np.argsort(rows[own])].astype(np.int32)
        self._ids = rows[self._order]

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Int32 `[num_ids]`; all have a row."""
        return self._order[np.searchsorted(self._ids, ids)]


class _Distinct:
    """The distinct edges of all hops, and their numbers."""

    def __init__(
        self,
        found: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]],
        names: tuple[str, ...],
        edges: Mapping[str, EdgeSet],
    ) -> None:
        self._first: dict[str, int] = {}
        self._places: dict[str, np.ndarray] = {}
        relations, places, senders, receivers = [], [], [], []
        start = 0
        for index, name in enumerate(names):
            each = [into[name] for into in found if name in into]
            own, chosen = np.unique(np.concatenate([one[2] for one in each]), return_index=True)
            self._first[name], self._places[name] = start, own
            start += len(own)
            relations.append(np.full(len(own), index, np.int32))
            places.append(own)
            senders.append(np.concatenate([one[0] for one in each])[chosen])
            receivers.append(np.concatenate([one[1] for one in each])[chosen])
        self.edges = Edges(
            np.concatenate(relations),
            np.concatenate(places),
            np.concatenate(senders),
            np.concatenate(receivers),
            names,
        )

    def number(self, name: str, places: np.ndarray) -> np.ndarray:
        return (self._first[name] + np.searchsorted(self._places[name], places)).astype(np.int32)


def _num_in_edges(edges: EdgeSet, ids: np.ndarray) -> int:
    return int((edges.indptr[ids + 1] - edges.indptr[ids]).sum())


def _in_edges(edges: EdgeSet, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and places of the edges into these nodes, one node after the other."""
    starts = edges.indptr[ids]
    lengths = edges.indptr[ids + 1] - starts
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(edges.senders[places]), np.repeat(ids, lengths).astype(np.int32), places
