"""Rows of learnable types on another graph: those that training learnt, and for new nodes a mean, or none."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.inference.aligned import known_rows
from jhgnn.inference.trained_on import TrainedOn

NewNodes: TypeAlias = Literal["refuse", "mean"]
"""What becomes of new nodes of types whose rows were learnt."""


@dataclasses.dataclass(frozen=True, eq=False)
class LearntRows:
    """Rows of the types without features.

    Attributes:
        tables: type -> float32 `[num_nodes, width]`; zeros where there is no row.
        missing: type -> bool `[num_nodes]`, nodes without a row; types without such nodes are absent.
        new_nodes: the rule that was followed.
    """

    tables: Mapping[str, np.ndarray]
    missing: Mapping[str, np.ndarray]
    new_nodes: NewNodes

    def check(self, graph: HeteroGraph, node_type: str, ids: np.ndarray) -> None:
        """Refuses nodes that are to be read and have no row.

        Raises:
            InputError: the first of them is named.
        """
        if node_type not in self.missing:
            return
        without = ids[self.missing[node_type][ids]]
        if not len(without):
            return
        key = str(graph.node_keys(node_type, without[:1])[0])
        if self.new_nodes == "refuse":
            raise InputError(
                f"graph {graph.name!r}: {key!r} of {node_type!r} is new (one of {len(without):,} that are read); the"
                " type has no features, and training learnt a row for each node: say --new-nodes mean"
                " (new_nodes='mean') to give them the mean row of nodes that share a neighbour with them"
            )
        raise InputError(
            f"graph {graph.name!r}: new node {key!r} of {node_type!r} shares no neighbour with a node that was trained,"
            " so its row cannot be their mean; join it to such nodes, or leave it out"
        )

    def check_all(self, graph: HeteroGraph) -> None:
        """The same where all target nodes are predicted: refuses what any edge or prediction reads."""
        for node_type in self.missing:
            ids = np.flatnonzero(self.missing[node_type])
            if node_type != graph.target:
                ids = ids[_have_edges(graph, node_type)[ids]]
            self.check(graph, node_type, ids)


def learnt_rows(
    graph: HeteroGraph, trained: TrainedOn, tables: Mapping[str, np.ndarray], new_nodes: NewNodes
) -> LearntRows:
    """Rows of each type that has a table.

    `mean` gives a new node v of type t the mean over its neighbours u, under every relation from or to t, of

        the mean learnt row of the other nodes of type t that u is joined with by that relation,

    where u counts if there are such nodes; for a relation within t, u's own learnt row takes the place of that mean.
    Rows of other types are not mixed in: they have other weights behind them.

    Args:
        graph: aligned.
        trained: what was trained on.
        tables: type -> float32 `[trained nodes, width]`.
        new_nodes: the rule.

    Raises:
        InputError: keys are missing, or nodes have gone by position.
    """
    found, missing = {}, {}
    for node_type, table in tables.items():
        known = known_rows(graph, trained, node_type)
        rows = np.zeros((len(known), table.shape[1]), np.float32)
        old = known >= 0
        rows[old] = table[known[old]]
        without = ~old
        if new_nodes == "mean" and without.any():
            means, has = _means(graph, node_type, rows, old)
            rows[without], without[without] = means, ~has
        found[node_type] = rows
        if without.any():
            missing[node_type] = without
    return LearntRows(found, missing, new_nodes)


def _means(graph: HeteroGraph, node_type: str, rows: np.ndarray, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean rows of the new nodes, `[new, width]`, and which of them have one."""
    new = np.flatnonzero(~old)
    total, count = np.zeros((len(new), rows.shape[1])), np.zeros(len(new))
    for relation, edges in graph.edges.items():
        if not edges.num_edges or node_type not in (relation.source, relation.target):
            continue
        joined = _matrix(edges, graph.num_nodes[relation.source])  # [targets, sources]
        if relation.source == relation.target:
            for way in (joined, joined.T.tocsr()):
                own = way[new][:, old]
                total += own @ rows[old]
                count += np.asarray(own.sum(axis=1)).reshape(-1)
            continue
        own = (joined if relation.target == node_type else joined.T).tocsr()[new]
        met = np.unique(own.indices)
        others = (joined.T if relation.target == node_type else joined).tocsr()[met][:, old]
        degrees = np.asarray(others.sum(axis=1)).reshape(-1)
        counts = degrees > 0
        means = (others[counts] @ rows[old]) / degrees[counts, None]
        own = own[:, met[counts]]
        total += own @ means
        count += np.asarray(own.sum(axis=1)).reshape(-1)
    has = count > 0
    return total / np.where(has, count, 1)[:, None], has


def _matrix(edges: EdgeSet, num_sources: int) -> sparse.csr_array:
    ones = np.ones(edges.num_edges)
    return sparse.csr_array((ones, edges.senders, edges.indptr), shape=(edges.num_targets, num_sources))


def _have_edges(graph: HeteroGraph, node_type: str) -> np.ndarray:
    found = np.zeros(graph.num_nodes[node_type], bool)
    for relation, edges in graph.edges.items():
        if relation.source == node_type:
            found[edges.senders] = True
        if relation.target == node_type:
            found |= np.diff(edges.indptr) > 0
    return found
