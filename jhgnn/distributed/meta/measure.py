"""What a plan's shards draw, fetch and compute on sampled batches, counted shard by shard: its balance, measured."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.distributed.meta.counts import reach
from jhgnn.distributed.meta.plan import MetaPlan, imbalance
from jhgnn.distributed.meta.work import KINDS, ModelShape, WorkCosts, node_flops, row_cost
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

_ID, _OFFSET = 4, 8


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """Means over batches, float64 `[shards]` unless said otherwise.

    Attributes:
        draws: neighbours drawn.
        rows: node type -> distinct input rows fetched; a row that several branches of a shard read is fetched once.
        flops: floating-point operations.
        work_s: float64 `[shards, 3]`, these by what they cost, by `KINDS`.
    """

    draws: np.ndarray
    rows: Mapping[str, np.ndarray]
    flops: np.ndarray
    work_s: np.ndarray

    @property
    def imbalance(self) -> float:
        """The heaviest shard's work over the mean."""
        return imbalance(self.work_s.sum(axis=1))


def measure_plan(
    graph: HeteroGraph,
    plan: MetaPlan,
    fan_outs: Mapping[Relation, Sequence[int]],
    batches: Sequence[np.ndarray],
    shape: ModelShape,
    costs: WorkCosts,
    seed: int = 0,
    first_step: int = 0,
) -> Measured:
    """Counts the work of every shard on batches, drawn as `count_tree` draws them."""
    tree = plan.tree
    draws, flops = np.zeros(plan.num_shards), np.zeros(plan.num_shards)
    types = sorted({node.node_type for node in tree.nodes if not tree.children(node.number)})
    rows = {node_type: np.zeros(plan.num_shards) for node_type in types}
    for step, batch in enumerate(batches, start=first_step):
        for shard, pieces in enumerate(plan.shards):
            fetched: dict[str, list[np.ndarray]] = {node_type: [] for node_type in types}
            for low, high in sorted({(piece.low, piece.high) for piece in pieces}):
                own = [piece for piece in pieces if (piece.low, piece.high) == (low, high)]
                computed = sorted({node for piece in own for node in piece.nodes(tree)})
                needed = _with_ancestors(plan, computed)
                branches = reach(graph, tree, fan_outs, batch[low:high], seed, step, needed)
                draws[shard] += sum(branches.draws[node] for node in needed)
                for node in computed:
                    vertices = branches.vertices[node]
                    flops[shard] += float(node_flops(tree, node, len(vertices), branches.draws[node], shape))
                    if not tree.children(node):
                        fetched[tree.nodes[node].node_type].append(vertices)
            for node_type, ids in fetched.items():
                rows[node_type][shard] += len(np.unique(np.concatenate(ids))) if ids else 0
    num_batches = len(batches)
    draws, flops = draws / num_batches, flops / num_batches
    rows = {node_type: counts / num_batches for node_type, counts in rows.items()}
    fetch_s = sum((counts * row_cost(shape, costs, name) for name, counts in rows.items()), np.zeros(plan.num_shards))
    by_kind = {"draws": draws * costs.draw_s, "bytes": fetch_s, "flops": flops * costs.flop_s}
    return Measured(draws, rows, flops, np.stack([by_kind[kind] for kind in KINDS], axis=1))


def stored_bytes(graph: HeteroGraph, plan: MetaPlan, shape: ModelShape) -> np.ndarray:
    """Bytes that each shard keeps to compute its branches, float64 `[shards]`: the rows of the types that its leaves
    read, whole, and the in-edges of the relations that it draws along, whole."""
    total = np.zeros(plan.num_shards)
    for shard in range(plan.num_shards):
        nodes = plan.nodes_of(shard)
        types = {plan.tree.nodes[node].node_type for node in nodes if not plan.tree.children(node)}
        drawn = {plan.tree.nodes[node].relation for node in _with_ancestors(plan, nodes)} - {None}
        total[shard] = sum(graph.num_nodes[name] * shape.row_bytes(name) for name in types)
        for relation in drawn:
            assert relation is not None
            edges = graph.edges[relation]
            total[shard] += edges.num_edges * _ID + (edges.num_targets + 1) * _OFFSET
    return total


def _with_ancestors(plan: MetaPlan, nodes: Sequence[int]) -> list[int]:
    found = set(nodes)
    for node in nodes:
        while (node := plan.tree.nodes[node].parent) >= 0:
            found.add(node)
    return sorted(found)
