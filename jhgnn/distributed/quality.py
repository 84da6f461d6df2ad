"""What a partition would cost before it is written: cut edges, halo, and the balance of targets, edges and bytes."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.distributed.assignment import Assignment
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

_AT_ONCE = 32  # parts whose halos are marked at the same time
_FLOAT, _ID, _OFFSET = 4, 4, 8  # bytes of a feature, of an id in `senders`, and of an entry of `indptr`


@dataclasses.dataclass(frozen=True, eq=False)
class Quality:
    """Counts of a partition; arrays are int64 `[num_parts]` unless said otherwise.

    Attributes:
        num_parts: parts.
        method: of the assignment.
        nodes: node type -> nodes owned.
        halo: node type -> nodes of other parts that send to this one.
        edges: relation -> edges into owned nodes.
        cut: relation -> those of them that come from another part.
        targets: split -> targets owned.
        feature_bytes: node type -> bytes of owned feature rows; a type without features is absent.
        halo_feature_bytes: node type -> bytes of the feature rows of its halo.
        edge_bytes: relation -> bytes of its edges and their offsets.
    """

    num_parts: int
    method: str
    nodes: Mapping[str, np.ndarray]
    halo: Mapping[str, np.ndarray]
    edges: Mapping[Relation, np.ndarray]
    cut: Mapping[Relation, np.ndarray]
    targets: Mapping[str, np.ndarray]
    feature_bytes: Mapping[str, np.ndarray]
    halo_feature_bytes: Mapping[str, np.ndarray]
    edge_bytes: Mapping[Relation, np.ndarray]

    @property
    def cut_share(self) -> float:
        """Share of all edges whose ends have different owners, in [0, 1]; 0 without edges."""
        total = sum(int(counts.sum()) for counts in self.edges.values())
        return sum(int(counts.sum()) for counts in self.cut.values()) / max(1, total)

    @property
    def part_bytes(self) -> np.ndarray:
        """Bytes of features and edges of each part, int64 `[num_parts]`."""
        return sum([*self.feature_bytes.values(), *self.edge_bytes.values()], np.zeros(self.num_parts, np.int64))

    def to_json(self) -> dict[str, object]:
        """Plain numbers under the attributes' names, and the shares and balances that follow from them."""
        tables: dict[str, object] = {"method": self.method, "num_parts": self.num_parts, "cut_share": self.cut_share}
        for field in dataclasses.fields(self)[2:]:
            tables[field.name] = {str(name): counts.tolist() for name, counts in getattr(self, field.name).items()}
        tables["part_bytes"] = self.part_bytes.tolist()
        tables["balance"] = {
            "targets": {split: balance(counts) for split, counts in self.targets.items()},
            "nodes": {node_type: balance(counts) for node_type, counts in self.nodes.items()},
            "edges": balance(sum(self.edges.values(), np.zeros(self.num_parts, np.int64))),
            "bytes": balance(self.part_bytes),
        }
        return tables


def balance(counts: np.ndarray) -> float:
    """The largest over the mean: 1 where all are equal, and where there is nothing."""
    return float(counts.max() / counts.mean()) if counts.sum() else 1.0


def assess(graph: HeteroGraph, assignment: Assignment) -> Quality:
    """Counts what each part would own and reach; nothing is cut out or copied.

    Raises:
        InputError: the assignment does not fit the graph.
    """
    assignment.check(graph)
    num_parts = assignment.num_parts
    edges, cut, edge_bytes = {}, {}, {}
    for relation, own in graph.edges.items():
        from_part = assignment.parts[relation.source][own.senders]
        to_part = np.repeat(assignment.parts[relation.target], np.diff(own.indptr))
        edges[relation] = np.bincount(to_part, minlength=num_parts)
        crossing = from_part != to_part
        cut[relation] = np.bincount(to_part[crossing], minlength=num_parts)
        width = _ID if own.weights is None else _ID + _FLOAT
        edge_bytes[relation] = edges[relation] * width + (assignment.counts(relation.target) + 1) * _OFFSET
    halo = {node_type: _halo_sizes(graph, assignment, node_type) for node_type in graph.num_nodes}
    targets = {}
    if graph.target is not None:
        owners = assignment.parts[graph.target]
        targets = {split: np.bincount(owners[ids], minlength=num_parts) for split, ids in graph.splits.items()}
    own_bytes, halo_bytes = {}, {}
    for node_type, matrix in graph.features.items():
        if isinstance(matrix, np.ndarray):
            own_bytes[node_type] = assignment.counts(node_type) * matrix.shape[1] * _FLOAT
            halo_bytes[node_type] = halo[node_type] * matrix.shape[1] * _FLOAT
        else:
            per_row = np.diff(matrix.indptr).astype(np.int64) * (_FLOAT + _ID) + _OFFSET
            total = np.bincount(assignment.parts[node_type], weights=per_row, minlength=num_parts)
            own_bytes[node_type] = total.astype(np.int64)
            halo_bytes[node_type] = (halo[node_type] * per_row.mean()).astype(np.int64) if len(per_row) else 0 * total
    nodes = {node_type: assignment.counts(node_type) for node_type in graph.num_nodes}
    return Quality(
        num_parts, assignment.method, nodes, halo, edges, cut, targets, own_bytes, halo_bytes, edge_bytes
    )  # fmt: skip


def _halo_sizes(graph: HeteroGraph, assignment: Assignment, node_type: str) -> np.ndarray:
    """How many nodes of a type send to each part from another one; marks them in `_AT_ONCE` bytes a node."""
    sizes = np.zeros(assignment.num_parts, np.int64)
    for first in range(0, assignment.num_parts, _AT_ONCE):
        block = min(_AT_ONCE, assignment.num_parts - first)
        reached = np.zeros((block, graph.num_nodes[node_type]), bool)
        for relation, own in graph.edges.items():
            if relation.source != node_type:
                continue
            to_part = np.repeat(assignment.parts[relation.target], np.diff(own.indptr)) - first
            here = (to_part >= 0) & (to_part < block)
            reached[to_part[here], own.senders[here]] = True
        owners = assignment.parts[node_type] - first
        owned = np.flatnonzero((owners >= 0) & (owners < block))
        reached[owners[owned], owned] = False
        sizes[first : first + block] = reached.sum(axis=1)
    return sizes
