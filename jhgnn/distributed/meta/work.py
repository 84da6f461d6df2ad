"""Seconds of work at each node of a metatree, from its counts: draws, bytes fetched by what a byte costs, and FLOPs."""

import dataclasses
import time
from collections.abc import Callable, Mapping

import numpy as np

from jhgnn.distributed.meta.counts import TreeCounts, at_share
from jhgnn.distributed.meta.tree import MetaTree
from jhgnn.graph.hetero_graph import HeteroGraph

KINDS = ("draws", "bytes", "flops")
FLOAT = 4
TRAINING = 3
"""FLOPs of a training step over those of its forward pass: the backward pass takes twice as many."""
STATES = 3
"""A learnable row comes with two moments of its optimizer."""


@dataclasses.dataclass(frozen=True)
class WorkCosts:
    """What work costs, in seconds; the defaults are `measured_costs` on an AMD EPYC, 2 cores, and a 10 Gb/s network.

    Attributes:
        draw_s: a neighbour drawn.
        byte_s: a byte of a feature row gathered.
        learnable_byte_s: a byte of a learnable row or its moments, gathered and written back.
        flop_s: a floating-point operation.
        exchange_byte_s: a byte between shards.
        rendezvous_s: the shards' meeting, however little they exchange.
    """

    draw_s: float = 1e-8
    byte_s: float = 2e-10
    learnable_byte_s: float = 3.5e-10
    flop_s: float = 1e-11
    exchange_byte_s: float = 8e-10
    rendezvous_s: float = 1e-4


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """What the model's layers are wide.

    Attributes:
        hidden: of representations, and of learnable rows.
        feature_widths: node type -> columns of its features; other types learn rows of `hidden`.
    """

    hidden: int
    feature_widths: Mapping[str, int]

    def input_width(self, node_type: str) -> int:
        return self.feature_widths.get(node_type, self.hidden)

    def row_bytes(self, node_type: str) -> int:
        """Bytes that one input row of a type is fetched with; a learnable one with its moments."""
        return FLOAT * self.input_width(node_type) * (1 if node_type in self.feature_widths else STATES)


def shape_of(graph: HeteroGraph, hidden: int) -> ModelShape:
    return ModelShape(hidden, {node_type: int(matrix.shape[1]) for node_type, matrix in graph.features.items()})


@dataclasses.dataclass(frozen=True, eq=False)
class TreeWork:
    """Work of each node of a tree for each share of a batch, float64 seconds `[shares, nodes]`, by kind.

    `draws`, `bytes` and `flops` add up to the node's work. `shares` and `batch_size` are those of the counts.
    """

    tree: MetaTree
    batch_size: int
    shares: tuple[float, ...]
    draws: np.ndarray
    bytes: np.ndarray
    flops: np.ndarray
    _sums: dict[tuple[int, ...], np.ndarray] = dataclasses.field(default_factory=dict, repr=False)

    def of(self, nodes: tuple[int, ...], targets: int, kind: str = "") -> float:
        """Seconds of some nodes for a number of targets, interpolated between shares; `kind`: of one kind alone."""
        by_kind = dict(zip(KINDS, self.by_kind(nodes, targets), strict=True))
        return float(by_kind[kind] if kind else sum(by_kind.values()))

    def by_kind(self, nodes: tuple[int, ...], targets: int) -> np.ndarray:
        """The same for each of `KINDS`, float64 `[3]`. Sums over nodes are remembered."""
        if nodes not in self._sums:
            parts = (self.draws, self.bytes, self.flops)
            self._sums[nodes] = np.stack([part[:, list(nodes)].sum(axis=1) for part in parts], axis=1)
        return at_share(self, self._sums[nodes], targets)


def tree_work(tree: MetaTree, counts: TreeCounts, shape: ModelShape, costs: WorkCosts) -> TreeWork:
    """The work that counts amount to."""
    draws, fetched, flops = (np.zeros_like(counts.vertices) for _ in range(3))
    for node in tree.nodes[1:]:
        leaf = not tree.children(node.number)
        vertices, drawn = counts.vertices[:, node.number], counts.draws[:, node.number]
        draws[:, node.number] = drawn * costs.draw_s
        fetched[:, node.number] = vertices * row_cost(shape, costs, node.node_type) if leaf else 0.0
        flops[:, node.number] = node_flops(tree, node.number, vertices, drawn, shape) * costs.flop_s
    return TreeWork(tree, counts.batch_size, counts.shares, draws, fetched, flops)


def row_cost(shape: ModelShape, costs: WorkCosts, node_type: str) -> float:
    """Seconds to fetch one input row of a type, and for a learnable one to bring it back."""
    cost = costs.byte_s if node_type in shape.feature_widths else costs.learnable_byte_s
    return shape.row_bytes(node_type) * cost


def node_flops(
    tree: MetaTree, number: int, vertices: np.ndarray | float, draws: np.ndarray | float, shape: ModelShape
) -> np.ndarray | float:
    """FLOPs of a training step at one node: its vertices are projected, and what was drawn is summed."""
    node = tree.nodes[number]
    width = shape.hidden if tree.children(number) else shape.input_width(node.node_type)
    return TRAINING * (2.0 * vertices * width * shape.hidden + 2.0 * draws * shape.hidden)


def measured_costs(
    shape: ModelShape, sample: Callable[[int], int], rows: int = 400_000, seconds: float = 0.5
) -> WorkCosts:
    """Costs of sampling, gathering, writing back and multiplying, measured now on this machine, each for `seconds`.

    The network is not measured: those costs keep their defaults.

    Args:
        shape: rows are gathered and multiplied at its widths.
        sample: draws the batch of a step, as training does, and returns how many neighbours were drawn.
        rows: of the table that is gathered from, more than caches hold.
        seconds: for each of them.
    """
    rng = np.random.default_rng(0)
    width = max([shape.hidden, *shape.feature_widths.values()])
    table = rng.random((rows, width), np.float32)
    some = np.split(rng.permutation(rows)[: rows // 16 * 16], 16)
    gathered = table[some[0]]
    weights = rng.random((width, shape.hidden), np.float32)

    def gather(turn: int) -> int:
        return int(table[some[turn % 16]].nbytes)

    def write_back(turn: int) -> int:
        table[some[turn % 16]] = gathered
        return int(gathered.nbytes)

    def multiply(_: int) -> int:
        return 2 * int((gathered @ weights).size) * width

    byte_s = _seconds_each(gather, seconds)
    return WorkCosts(
        draw_s=_seconds_each(sample, seconds),
        byte_s=byte_s,
        learnable_byte_s=byte_s + _seconds_each(write_back, seconds),
        flop_s=_seconds_each(multiply, seconds),
    )


def _seconds_each(run: Callable[[int], int], seconds: float) -> float:
    """Seconds for each of what `run` counts, over repeated turns."""
    run(0)
    done, turn, start = 0, 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        turn += 1
        done += run(turn)
    return spent / max(1, done)
