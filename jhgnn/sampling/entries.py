"""The edges behind the entries of a sampled table: which to leave out, and what the others weigh.

An entry is left out if its edge shows a link of the batch (`jhgnn.tasks.link_edges`). Which edge an entry stands for is
not stored: a draw is a function of (seed, step, hop, relation, vertex), so it is made once more. Entries are left out
after the draw, so that draws do not depend on the batch. R-GCN's mean and R-GAT's softmax are then over the neighbours
that stay.

A stack of relations is drawn as one: k of a vertex's edges, of any of its relations. An entry of relation r at vertex v
weighs (edges of v / k) / (edges of v under r). In expectation the weighted sum over entries is then R-GCN's sum of
means over relations. Where edges are left out, both counts are of those that stay.

Features of edges come to the entries in the same way (`jhgnn.sampling.entry_features`), but for the sampler by time,
whose tables tell their entries' edges.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Csr
from jhgnn.sampling.block_arrays import EntryFeatures
from jhgnn.sampling.draw import neighbor_offsets, stream_keys, vertex_keys
from jhgnn.sampling.entry_features import with_entry_features
from jhgnn.sampling.native import native_offsets
from jhgnn.sampling.plan import Draw, SamplingPlan

Array = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class EdgeFacts:
    """What each edge of one draw stands for, in the order of its in-edges; NumPy on the host.

    Attributes:
        forwards, backwards: int32 `[num_edges]`, the training link that the edge shows, `num_links` for none (see
            `jhgnn.tasks.link_edges`); both None where no edge shows one.
        relation: int32 `[num_edges]`, the edge's relation among those of its stack; None where the draw is no stack.
        group: int32 `[num_edges]`, ascending: the edge's (receiver, relation) in the stack; None where it is no stack.
        num_groups: how many groups there are.
        num_links: how many training links there are.
        features: float32 `[num_edges, columns]`, or None; not beside any of the others.
        splits: whether entries with features become senders of their own.
    """

    forwards: Array  # or None, like those after it
    backwards: Array
    relation: Array
    group: Array
    num_groups: int = dataclasses.field(metadata={"static": True})
    num_links: int = dataclasses.field(metadata={"static": True})
    features: Array = None
    splits: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def of_entries(self) -> EntryFeatures | None:
        """The features that entries get."""
        return None if self.features is None else EntryFeatures(int(self.features.shape[1]), self.splits)


class HostEntries:
    """Leaves out and weighs entries of the host sampler's blocks, on a loader's threads."""

    def __init__(self, plan: SamplingPlan, edges: Mapping[str, Csr], facts: Mapping[str, EdgeFacts]) -> None:
        """`edges` are in-edges by draw, `facts` those of the draws that have some; NumPy."""
        self.plan, self.edges, self.facts = plan, edges, facts
        self._groups = {name: _group_sizes(own) for name, own in facts.items()}
        self._shown = {name: _edges_of_links(own) for name, own in facts.items() if own.forwards is not None}

    def annotated(self, blocks: SampledBlocks, ids: np.ndarray, seed: int, step: int) -> SampledBlocks:
        """Blocks without the entries that show a link of the batch, and with weights for those of stacks.

        Entries of draws whose edges have features get these. The blocks have a leading axis over shards.

        Args:
            ids: int32 `[batch]`, the whole batch's links, -1 for none.
            seed, step: as the blocks were drawn.
        """
        hops = []
        for hop, tables in enumerate(blocks.hops):
            made = dict(tables)
            for draw in self.plan.draws_at(hop):
                if draw.name in self.facts:
                    vertices = blocks.frontier(hop, draw.target)
                    made[draw.name] = self._table(draw, hop, tables[draw.name], vertices, ids, seed, step)
            hops.append(made)
        return dataclasses.replace(blocks, hops=tuple(hops))

    def _table(
        self, draw: Draw, hop: int, table: NeighborTable, vertices: np.ndarray, ids: np.ndarray, seed: int, step: int
    ) -> NeighborTable:
        facts, indptr = self.facts[draw.name], self.edges[draw.name].indptr
        if table.entry_edges is not None:
            told = dataclasses.replace(table, entry_edges=None)
            return with_entry_features(told, table.entry_edges, facts.features, splits=facts.splits)
        flat = np.ascontiguousarray(vertices).reshape(-1)
        known = np.maximum(flat, 0)
        degrees = np.where(flat >= 0, indptr[known + 1] - indptr[known], 0).astype(np.int32)
        width = table.width
        if draw.fan_outs[hop] < 0 or width < draw.fan_outs[hop]:
            offsets = np.broadcast_to(np.arange(width, dtype=np.int32), (len(flat), width))
        else:
            offsets = native_offsets(seed, step, hop, draw.key, flat, degrees, width)
        kept = np.arange(width)[None, :] < table.num_neighbors.reshape(-1)[:, None]
        positions = np.where(kept, indptr[known][:, None] + offsets, 0)
        if facts.features is not None:
            return with_entry_features(table, positions, facts.features, splits=facts.splits)
        links = ids[ids >= 0]
        if facts.forwards is not None:
            in_batch = np.zeros(facts.num_links + 1, bool)
            in_batch[links] = True
            kept &= ~(in_batch[facts.forwards[positions]] | in_batch[facts.backwards[positions]])
        if facts.group is None:
            return _without(table, kept)
        gone = self._shown[draw.name].of(links) if draw.name in self._shown else np.zeros(0, np.int64)
        group = facts.group[positions]
        size = self._groups[draw.name][group] - _looked_up(facts.group[gone], group)
        receivers = np.searchsorted(indptr, gone, side="right") - 1
        left = degrees - _looked_up(receivers, flat)
        count = kept.sum(axis=1)
        weights = _weights(np, kept, size, left, count)
        shape = table.senders.shape
        return dataclasses.replace(
            table,
            entry_relations=np.where(kept, facts.relation[positions], 0).astype(np.int32).reshape(shape),
            entry_weights=weights.reshape(shape),
        )


def annotated_on_device(
    plan: SamplingPlan,
    blocks: SampledBlocks,
    edges: Mapping[str, Csr],
    facts: Mapping[str, EdgeFacts],
    ids: jax.Array,
    seed: jax.Array,
    step: jax.Array,
) -> SampledBlocks:
    """As `HostEntries.annotated`, traced, of one shard: the same entries and weights. `ids` are the whole batch's."""
    hops = []
    for hop, tables in enumerate(blocks.hops):
        made = dict(tables)
        for draw in plan.draws_at(hop):
            if draw.name in facts:
                vertices = blocks.frontier(hop, draw.target)
                made[draw.name] = _table_on_device(
                    draw, hop, tables[draw.name], vertices, edges[draw.name], facts[draw.name], ids, seed, step
                )
        hops.append(made)
    return dataclasses.replace(blocks, hops=tuple(hops))


def _table_on_device(
    draw: Draw,
    hop: int,
    table: NeighborTable,
    vertices: jax.Array,
    edges: Csr,
    facts: EdgeFacts,
    ids: jax.Array,
    seed: jax.Array,
    step: jax.Array,
) -> NeighborTable:
    known, width = jnp.maximum(vertices, 0), table.width
    start = edges.indptr[known]
    degrees = jnp.where(vertices >= 0, edges.indptr[known + 1] - start, 0)
    if draw.fan_outs[hop] < 0 or width < draw.fan_outs[hop]:
        offsets = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (len(vertices), width))
    else:
        offsets, _ = neighbor_offsets(vertex_keys(stream_keys(seed, step, hop, draw.key), vertices), degrees, width)
    kept = table.mask
    positions = jnp.where(kept, start[:, None] + offsets, 0)
    if facts.features is not None:
        return with_entry_features(table, positions, facts.features, splits=facts.splits)
    num_edges = edges.indices.shape[0]
    stays = jnp.ones(num_edges, bool)
    if facts.forwards is not None:
        where = jnp.where(ids >= 0, ids, facts.num_links)
        in_batch = jnp.zeros(facts.num_links + 1, bool).at[where].set(True).at[facts.num_links].set(False)
        stays = ~(in_batch[facts.forwards] | in_batch[facts.backwards])
        kept &= stays[positions]
    if facts.group is None:
        return _without(table, kept)
    sizes = jax.ops.segment_sum(stays.astype(jnp.int32), facts.group, facts.num_groups, indices_are_sorted=True)
    running = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(stays, dtype=jnp.int32)])
    left = jnp.where(vertices >= 0, running[edges.indptr[known + 1]] - running[start], 0)
    assert facts.relation is not None
    return dataclasses.replace(
        table,
        entry_relations=jnp.where(kept, facts.relation[positions], 0),
        entry_weights=_weights(jnp, kept, sizes[facts.group[positions]], left, kept.sum(axis=1)),
    )


def _weights(xp: Any, kept: Array, size: Array, left: Array, count: Array) -> Array:
    """float32 `[targets, width]`; 0 for entries that are not kept."""
    share = left.astype(np.float32) / xp.maximum(count, 1).astype(np.float32)
    each = share[:, None] / xp.maximum(size, 1).astype(np.float32)
    return xp.where(kept, each, np.float32(0.0)).astype(np.float32)


def _without(table: NeighborTable, kept: Array) -> NeighborTable:
    """The table with the kept entries alone, in their order."""
    xp = np if isinstance(kept, np.ndarray) else jnp
    senders = table.senders.reshape(kept.shape)
    order = xp.argsort(~kept, axis=1, stable=True)
    counts = kept.sum(axis=1).astype(np.int32)
    moved = xp.take_along_axis(senders, order, axis=1)
    moved = xp.where(xp.arange(kept.shape[1])[None, :] < counts[:, None], moved, 0)
    return dataclasses.replace(
        table,
        senders=moved.reshape(table.senders.shape).astype(np.int32),
        num_neighbors=counts.reshape(table.num_neighbors.shape),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _LinkEdges:
    """The edges that show each link, compressed by link."""

    indptr: np.ndarray
    edges: np.ndarray

    def of(self, links: np.ndarray) -> np.ndarray:
        """Edges that show some links, each once, ascending."""
        counts = self.indptr[links + 1] - self.indptr[links]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.unique(self.edges[np.repeat(self.indptr[links], counts) + within])


def _edges_of_links(facts: EdgeFacts) -> _LinkEdges:
    assert facts.forwards is not None
    links = np.concatenate([facts.forwards, facts.backwards])
    edges = np.tile(np.arange(len(facts.forwards), dtype=np.int64), 2)
    shown = links < facts.num_links
    links, edges = links[shown], edges[shown]
    order = np.argsort(links, kind="stable")
    indptr = np.zeros(facts.num_links + 1, np.int64)
    np.cumsum(np.bincount(links, minlength=facts.num_links), out=indptr[1:])
    return _LinkEdges(indptr, edges[order])


def _group_sizes(facts: EdgeFacts) -> np.ndarray:
    return np.zeros(0, np.int64) if facts.group is None else np.bincount(facts.group, minlength=facts.num_groups)


def _looked_up(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How often each wanted number is among those found."""
    numbers, counts = np.unique(found, return_counts=True)
    if not len(numbers):
        return np.zeros(wanted.shape, np.int64)
    place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where(numbers[place] == wanted, counts[place], 0)
