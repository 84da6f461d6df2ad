"""Bytes that a plan's shards send each other in a step, from counts; and what training over data would send."""

from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.distributed.meta.counts import TreeCounts, at_share
from jhgnn.distributed.meta.plan import TRAFFIC, Piece
from jhgnn.distributed.meta.tree import MetaTree
from jhgnn.distributed.meta.work import FLOAT, ModelShape

Shards = Sequence[Sequence[Piece]]


class Traffic:
    """Predicts what shards send. What a branch of the tree reads and weighs is looked up once and remembered."""

    def __init__(self, tree: MetaTree, counts: TreeCounts, shape: ModelShape) -> None:
        self._tree, self._counts, self._shape = tree, counts, shape
        leaves = {node.node_type for node in tree.nodes if not tree.children(node.number)}
        self._types = sorted(leaves - set(shape.feature_widths))
        self._all_rows = np.array([counts.rows(name, counts.batch_size) for name in self._types])
        weights: dict[tuple[int, str, str], int] = {}
        self._weight_of = np.zeros(len(tree.nodes), np.int64)
        for node in tree.nodes[1:]:
            key = (node.hop, node.name, node.node_type)
            self._weight_of[node.number] = weights.setdefault(key, len(weights))
        widths = [shape.hidden if hop < tree.num_hops else shape.input_width(name) for hop, _, name in weights]
        self._weight_bytes = np.array(widths, np.float64) * shape.hidden * FLOAT
        self._known: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}
        self._rows: dict[tuple[int, bool, int], np.ndarray] = {}
        self._frontiers: dict[tuple[int, int], float] = {}

    def row_owners(self, shards: Shards) -> dict[str, int]:
        """The shard that reads most rows of each learnable type: the others must be sent theirs."""
        rows = self._learnable_rows(shards)
        return {name: int(np.argmax(own)) for name, own in zip(self._types, rows, strict=True) if own.any()}

    def sent_bytes(self, shards: Shards, row_owners: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Predicted bytes that each shard sends in a step: kind of `TRAFFIC` -> float64 `[shards]`.

        - `partials`: all shards sum what they made of the targets, `[batch, hidden]`, in a ring; the backward pass
          sends nothing, since all of them know the gradient of a sum.
        - `frontiers`: below a node that is cut, another shard sends the sum of what its branches made of the node's
          vertices, `[vertices, hidden]`, and gets the gradient back.
        - `rows`: the owner of a type's learnable rows sends them to the other shards that read them, which send
          gradients back.
        - `weights`: shards that compute one relation at one layer sum its weight's gradient in a ring.
        """
        sent = {kind: np.zeros(len(shards)) for kind in TRAFFIC}
        if len(shards) == 1:
            return sent
        hidden_bytes = self._shape.hidden * FLOAT
        sent["partials"] += _ring(len(shards), self._counts.batch_size * hidden_bytes)
        for name, rows in zip(self._types, self._learnable_rows(shards), strict=True):
            if rows.any():
                sizes = rows * hidden_bytes
                sizes[row_owners[name]] = 0.0
                sent["rows"] += sizes
                sent["rows"][row_owners[name]] += sizes.sum()
        held = np.stack([self._weights_of(pieces) for pieces in shards])
        holders = held.sum(axis=0)
        shared = np.where(holders > 1, _ring(np.maximum(holders, 1), self._weight_bytes), 0.0)
        sent["weights"] += held @ shared
        self._add_frontiers(sent["frontiers"], shards)
        return sent

    def _add_frontiers(self, sent: np.ndarray, shards: Shards) -> None:
        """What pieces below a cut node exchange with the shards that hold that node, for the targets they share."""
        trunks: dict[int, list[tuple[int, Piece]]] = {}
        for shard, pieces in enumerate(shards):
            for piece in pieces:
                if not piece.whole:
                    trunks.setdefault(piece.node, []).append((shard, piece))
        for shard, pieces in enumerate(shards) if trunks else ():
            met = {(self._tree.nodes[piece.node].parent, piece.low, piece.high) for piece in pieces}
            for parent, low, high in sorted(met):
                for other, trunk in trunks.get(parent, ()):
                    shared = min(high, trunk.high) - max(low, trunk.low)
                    if other != shard and shared > 0:
                        size = self._vertices(parent, shared) * self._shape.hidden * FLOAT
                        sent[shard] += size
                        sent[other] += size

    def _vertices(self, node: int, targets: int) -> float:
        if (node, targets) not in self._frontiers:
            vertices = at_share(self._counts, self._counts.vertices[:, [node]], targets)
            self._frontiers[node, targets] = float(vertices[0])
        return self._frontiers[node, targets]

    def _learnable_rows(self, shards: Shards) -> np.ndarray:
        """Rows that each shard reads, float64 `[learnable types, shards]`; those of several branches once at most."""
        rows = np.zeros((len(self._types), len(shards)))
        for shard, pieces in enumerate(shards):
            for piece in pieces:
                key = (piece.node, piece.whole, piece.targets)
                if key not in self._rows:
                    self._rows[key] = at_share(self._counts, self._branch(piece)[0], piece.targets)
                rows[:, shard] += self._rows[key]
        return np.minimum(rows, self._all_rows[:, None])

    def _weights_of(self, pieces: Sequence[Piece]) -> np.ndarray:
        held = np.zeros(len(self._weight_bytes), bool)
        for piece in pieces:
            held[self._branch(piece)[1]] = True
        return held

    def _branch(self, piece: Piece) -> tuple[np.ndarray, np.ndarray]:
        """Learnable rows that a piece reads, `[shares, learnable types]`, and the weights that it computes with."""
        key = (piece.node, piece.whole)
        if key not in self._known:
            nodes = np.array(piece.nodes(self._tree))
            rows = np.zeros((len(self._counts.shares), len(self._types)))
            for number in nodes:
                node = self._tree.nodes[number]
                if node.node_type in self._types and not self._tree.children(number):
                    rows[:, self._types.index(node.node_type)] += self._counts.vertices[:, number]
            self._known[key] = rows, np.unique(self._weight_of[nodes])
        return self._known[key]


def data_parallel_bytes(counts: TreeCounts, shape: ModelShape, num_shards: int) -> float:
    """Bytes that all devices send in a step of training over `data` alone, where rows lie on random parts.

    Each device trains its share of the targets; of the distinct rows it needs, `1 - 1 / devices` lie elsewhere. A fixed
    row is sent once; a learnable one is sent, and its gradient returned. Gradients of weights are left out.
    """
    total = 0.0
    for node_type in counts.input_rows:
        rows = num_shards * counts.rows(node_type, counts.batch_size / num_shards) * (1 - 1 / num_shards)
        ways = 1 if node_type in shape.feature_widths else 2
        total += rows * shape.input_width(node_type) * FLOAT * ways
    return total


def _ring(members: "int | np.ndarray", size: "float | np.ndarray") -> "float | np.ndarray":
    """Bytes that each member of a ring sends to sum `size` bytes."""
    return 2 * (members - 1) / members * size
