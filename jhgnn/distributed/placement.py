"""Which place of a mesh keeps each node's rows, and where among its own; the same in every process."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.numbering import renumber
from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import Csr


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """The home of every node.

    Attributes:
        num_places: places that keep rows; one part of a partition each.
        rows: node type -> rows of each place, those of the one that keeps most; at least 1.
        homes: node type -> int32 `[num_nodes]`, `place * rows + row`.
        method: how the nodes were assigned.
    """

    num_places: int
    rows: Mapping[str, int]
    homes: Mapping[str, np.ndarray]
    method: str

    @classmethod
    def of(cls, assignment: Assignment, *, spare_rows: int = 0) -> "Placement":
        """A place for each part; its rows are in the order of the nodes' ids, at least `spare_rows` behind them."""
        numbering = renumber(assignment)
        rows, homes = {}, {}
        for node_type, offsets in numbering.offsets.items():
            rows[node_type] = max(1, int(np.diff(offsets).max(initial=0)) + spare_rows)
            place = assignment.parts[node_type].astype(np.int64)
            row = numbering.new[node_type] - offsets[place]
            if assignment.num_parts * rows[node_type] >= 2**31:
                raise InputError(
                    f"{assignment.num_parts} parts of {rows[node_type]} {node_type} rows: need below 2**31"
                )
            homes[node_type] = (place * rows[node_type] + row).astype(np.int32)
        return cls(assignment.num_parts, rows, homes, assignment.method)

    @classmethod
    def joint(cls, parts: Mapping[str, np.ndarray], num_places: int, method: str) -> "Placement":
        """A place's rows of all types stand in one array, one type after the other, each in the order of ids.

        `rows` are then those of all types, the same for each. `parts` are the places of nodes, int32 `[num_nodes]`.

        Raises:
            InputError: more rows than an int32 numbers.
        """
        begin, found = np.zeros(num_places, np.int64), {}
        for node_type, places in parts.items():
            counts = np.bincount(places, minlength=num_places)
            order = np.argsort(places, kind="stable")
            rank = np.empty(len(places), np.int64)
            rank[order] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
            found[node_type] = begin[places] + rank
            begin += counts
        rows = max(1, int(begin.max(initial=0)))
        if num_places * rows >= 2**31:
            raise InputError(f"{num_places} devices of {rows} learnable rows: need below 2**31")
        homes = {name: (parts[name].astype(np.int64) * rows + row).astype(np.int32) for name, row in found.items()}
        return cls(num_places, dict.fromkeys(parts, rows), homes, method)

    def check(self, graph: HeteroGraph, where: str) -> None:
        """Raises InputError unless every node of the graph has a home here."""
        for node_type, count in graph.num_nodes.items():
            have = len(self.homes.get(node_type, ()))
            if have != count:
                raise InputError(
                    f"{where} is of a graph with {have} nodes of type {node_type!r}, but the data has {count}; cut it"
                    " anew with python -m jhgnn.partition"
                )

    def places(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        """The place of each node, int32 `[n]`; -1 for an id below 0."""
        homes = self.homes[node_type][np.maximum(ids, 0)]
        return np.where(ids < 0, -1, homes // self.rows[node_type]).astype(np.int32)

    def cut(self, node_type: str, table: np.ndarray, places: range | None = None) -> np.ndarray:
        """Rows of all nodes, `[num_nodes, ...]`, as each of some places keeps them, `[places, rows, ...]`; zeros where
        a place has no more.
        """
        places = range(self.num_places) if places is None else places
        rows, homes = self.rows[node_type], self.homes[node_type]
        out = np.zeros((len(places) * rows, *table.shape[1:]), table.dtype)
        where = homes - places.start * rows
        own = (where >= 0) & (where < len(out))
        out[where[own]] = np.asarray(table)[own]
        return out.reshape(len(places), rows, *table.shape[1:])

    def whole(self, node_type: str, cut: np.ndarray) -> np.ndarray:
        """Rows of all nodes in the order of their ids, from those of all places, `[num_places, rows, ...]`."""
        return cut.reshape(-1, *cut.shape[2:])[self.homes[node_type]]

    def with_more(self, places: Mapping[str, np.ndarray]) -> "Placement":
        """The same with more rows behind those of some node types; `places` are their homes, int32 `[n]` by type."""
        rows, homes = dict(self.rows), dict(self.homes)
        for node_type, own in places.items():
            before, counts = self.rows[node_type], np.bincount(own, minlength=self.num_places)
            rows[node_type] = before + int(counts.max(initial=0))
            if self.num_places * rows[node_type] >= 2**31:
                raise InputError(f"{self.num_places} parts of {rows[node_type]} {node_type} rows: need below 2**31")
            order = np.argsort(own, kind="stable")
            rank = np.empty(len(own), np.int64)
            rank[order] = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
            place, row = np.divmod(self.homes[node_type].astype(np.int64), before)
            more = own * np.int64(rows[node_type]) + before + rank
            homes[node_type] = np.concatenate([place * rows[node_type] + row, more]).astype(np.int32)
        return dataclasses.replace(self, rows=rows, homes=homes)

    def cut_edges(self, node_type: str, edges: EdgeSet, places: range | None = None) -> Csr:
        """In-edges of nodes of a type as each of some places keeps them: int32 `indptr` `[places, rows + 1]`, and
        `indices` `[places, n]`, the senders' ids in the whole graph, zeros where a place has fewer edges.
        """
        places = range(self.num_places) if places is None else places
        degrees, ids = np.diff(edges.indptr), self.ids(node_type, places)
        homes = self.homes[node_type] // self.rows[node_type]
        most = int(np.bincount(homes, degrees, self.num_places).max(initial=0))
        if most >= 2**31:
            raise InputError(f"a part has {most:,} in-edges of {node_type!r} in one relation: need below 2**31")
        indptr = np.zeros((len(places), ids.shape[1] + 1), np.int32)
        indices = np.zeros((len(places), max(1, most)), np.int32)
        for number, own in enumerate(ids):
            counts = np.where(own >= 0, degrees[own], 0)
            np.cumsum(counts, out=indptr[number, 1:])
            starts = np.repeat(edges.indptr[own] - indptr[number, :-1], counts)
            total = int(indptr[number, -1])
            indices[number, :total] = edges.senders[starts + np.arange(total)]
        return Csr(indptr, indices)

    def ids(self, node_type: str, places: range) -> np.ndarray:
        """The nodes whose rows some places keep, int32 `[places, rows]`; -1 where a place has no more."""
        numbers = np.arange(1, len(self.homes[node_type]) + 1, dtype=np.int32)
        return self.cut(node_type, numbers, places) - 1

    def abstract(self, node_type: str, table: Any, places: range) -> jax.ShapeDtypeStruct:
        """Shape and dtype of `cut`."""
        return jax.ShapeDtypeStruct((len(places), self.rows[node_type], *table.shape[1:]), table.dtype)
