"""What a batch draws at each node of a metatree, counted on sampled batches; draws are those of training."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from jhgnn.distributed.meta.tree import MetaTree
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation
from jhgnn.sampling.draw import relation_key
from jhgnn.sampling.native import native_offsets

SHARES = (0.25, 0.5, 1.0)
"""Of a batch's targets: a branch over a small type costs nearly the same for a quarter of the targets as for all."""


@dataclasses.dataclass(frozen=True, eq=False)
class TreeCounts:
    """Means over batches.

    Attributes:
        batch_size: targets of a whole batch.
        shares: ascending, the last is 1.
        vertices: float64 `[shares, nodes]`, distinct vertices at each node of the tree.
        draws: float64 `[shares, nodes]`, neighbours drawn to reach them; 0 for `self` and the root.
        input_rows: node type -> float64 `[shares]`, distinct vertices that all leaves of the tree together read.
    """

    batch_size: int
    shares: tuple[float, ...]
    vertices: np.ndarray
    draws: np.ndarray
    input_rows: Mapping[str, np.ndarray]

    def rows(self, node_type: str, targets: float) -> float:
        """Distinct input rows of a type for a number of targets, interpolated between shares."""
        return float(at_share(self, self.input_rows[node_type][:, None], targets)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Branches:
    """What targets reach: node of the tree -> its distinct vertices, ascending, and how many were drawn."""

    vertices: Mapping[int, np.ndarray]
    draws: Mapping[int, int]


class Shares(Protocol):
    """What is known for several shares of a batch."""

    @property
    def batch_size(self) -> int: ...

    @property
    def shares(self) -> tuple[float, ...]: ...


def at_share(known: Shares, table: np.ndarray, targets: float) -> np.ndarray:
    """A table `[shares, n]` for a number of targets, `[n]`: interpolated between shares, and nothing for no targets."""
    share = targets / known.batch_size
    above = min(int(np.searchsorted(known.shares, share)), len(known.shares) - 1)
    low, under = (known.shares[above - 1], table[above - 1]) if above else (0.0, np.zeros_like(table[0]))
    return under + (table[above] - under) * ((share - low) / (known.shares[above] - low))


def reach(
    graph: HeteroGraph,
    tree: MetaTree,
    fan_outs: Mapping[Relation, Sequence[int]],
    targets: np.ndarray,
    seed: int,
    step: int,
    nodes: Sequence[int] | None = None,
) -> Branches:
    """Draws along the tree as the samplers do: a vertex draws what it draws in training at that seed and step.

    Args:
        fan_outs: relation -> neighbours kept at each hop, -1 for all, as `jhgnn.sampling.fan_out.fan_outs` gives them.
        targets: int32 `[n]` vertex ids.
        nodes: those wanted, ascending, with all their ancestors; None for all.

    Raises:
        InputError: the fan-outs have fewer hops than the tree.
    """
    found: dict[int, np.ndarray] = {0: np.unique(targets)}
    draws: dict[int, int] = {0: 0}
    for number in range(1, len(tree.nodes)) if nodes is None else [number for number in nodes if number]:
        node = tree.nodes[number]
        above = found[node.parent]
        if node.relation is None:
            found[number], draws[number] = above, 0
            continue
        per_hop = fan_outs[node.relation]
        if len(per_hop) < node.hop:
            raise InputError(f"fan-outs of {len(per_hop)} hops for a metatree of {tree.num_hops}; give one a hop")
        drawn = _neighbors(graph, node.relation, above, per_hop[node.hop - 1], seed, step, node.hop - 1)
        found[number], draws[number] = np.unique(drawn), len(drawn)
    return Branches(found, draws)


def count_tree(
    graph: HeteroGraph,
    tree: MetaTree,
    fan_outs: Mapping[Relation, Sequence[int]],
    batches: Sequence[np.ndarray],
    seed: int = 0,
    first_step: int = 0,
    shares: Sequence[float] = SHARES,
) -> TreeCounts:
    """Counts what batches reach; batch i is drawn as step `first_step + i`.

    Args:
        fan_outs: as in `reach`.
        batches: int32 `[batch_size]` targets each.
        shares: ascending, ending with 1; the first targets of a batch stand for a share of it.

    Raises:
        InputError: no batches, or shares that do not end with 1.
    """
    if not batches or not shares or list(shares) != sorted(set(shares)) or shares[0] <= 0 or shares[-1] != 1:
        raise InputError(f"{len(batches)} batches and shares {tuple(shares)}; need batches, and shares that rise to 1")
    vertices, draws = np.zeros((2, len(shares), len(tree.nodes)))
    leaves = [node.number for node in tree.nodes if not tree.children(node.number)]
    rows = {node_type: np.zeros(len(shares)) for node_type in {tree.nodes[leaf].node_type for leaf in leaves}}
    for step, batch in enumerate(batches, start=first_step):
        for at, share in enumerate(shares):
            branches = reach(graph, tree, fan_outs, batch[: max(1, round(share * len(batch)))], seed, step)
            vertices[at] += [len(branches.vertices[number]) for number in range(len(tree.nodes))]
            draws[at] += [branches.draws[number] for number in range(len(tree.nodes))]
            for node_type in rows:
                own = [branches.vertices[leaf] for leaf in leaves if tree.nodes[leaf].node_type == node_type]
                rows[node_type][at] += len(np.unique(np.concatenate(own)))
    return TreeCounts(
        batch_size=max(len(batch) for batch in batches),
        shares=tuple(shares),
        vertices=vertices / len(batches),
        draws=draws / len(batches),
        input_rows={node_type: count / len(batches) for node_type, count in sorted(rows.items())},
    )


def _neighbors(
    graph: HeteroGraph, relation: Relation, vertices: np.ndarray, fan_out: int, seed: int, step: int, hop: int
) -> np.ndarray:
    """The neighbours drawn, int32, with repeats."""
    edges = graph.edges[relation]
    starts = edges.indptr[vertices]
    degrees = edges.indptr[vertices + 1] - starts
    if fan_out == 0 or not degrees.any():
        return np.zeros(0, np.int32)
    if fan_out < 0:
        kept, offsets = degrees, None
    else:
        kept = np.minimum(degrees, fan_out)
        offsets = native_offsets(seed, step, hop, relation_key(relation), vertices, degrees, fan_out)
    if offsets is None:
        positions = np.arange(kept.sum()) + np.repeat(starts - (np.cumsum(kept) - kept), kept)
    else:
        positions = (starts[:, None] + offsets)[np.arange(fan_out)[None, :] < kept[:, None]]
    return edges.senders[positions]
