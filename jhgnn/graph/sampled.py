"""Sampled blocks: the padded neighbour tables of one mini-batch, whose shapes depend on capacities only.

The vertices of a type stand in slots. Hop by hop the slots only grow: the frontier of hop h is the first
`capacities[h][type]` slots, so a target's own row at the next hop is found at its own slot, without an index.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.semantic_graph import SemanticGraph

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

PADDING = -1
"""The id in a slot that holds no vertex."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class NeighborTable:
    """The sampled neighbours of one hop's frontier under one relation or metapath.

    Attributes:
        senders: int32 `[num_targets, width]`, slots in the next hop's frontier of the source type; 0 beyond a row's
            `num_neighbors`.
        num_neighbors: int32 `[num_targets]`, how many leading columns count; 0 for padding slots.
        visits: int32 `[num_targets, width]`, walks that ended at the neighbour (0 beyond), or None for fan-out draws.
        sender_ids: int32 `[num_sources]`, global ids by slot, or None: see `SampledBlocks.table`.
        receiver_ids: int32 `[num_targets]`, likewise.
        edges: the same neighbours compressed in both directions, for the kernels of the CPU, or None: see
            `jhgnn.sampling.compressed`. Its last receiver, `num_targets`, takes what is padding.
        edge_entries: int32 `[edges.num_edges]`, the entry of each edge, counted row by row, or None where entries have
            no weights.
        entry_relations: int32 `[num_targets, width]`, of a table drawn from a stack of relations: each entry's relation
            among them; None for others.
        entry_weights: float32 likewise: see `jhgnn.sampling.entries`; 0 for entries that do not count.
        entry_features: float32 `[num_targets, width, columns]`, the features of each entry's edge, 0 for padding; None
            where the model reads none.
        entry_senders: int32 `[num_targets, width]`, the slot that each entry stands for, where each is a sender of its
            own (`jhgnn.sampling.entry_features`); else None.
        entry_edges: int64 `[num_targets, width]`, on the host: the edge of each entry in the relation, where a sampler
            tells; `jhgnn.sampling.entries` takes it off.
        num_sources: slots of the source type at the next hop; of such a table, its entries.
        name: the relation or metapath.
    """

    senders: Array
    num_neighbors: Array
    visits: Array | None
    sender_ids: Array | None
    receiver_ids: Array | None
    num_sources: int = dataclasses.field(metadata={"static": True})
    name: str = dataclasses.field(default="", metadata={"static": True})
    edges: SemanticGraph | None = None
    edge_entries: Array | None = None
    entry_relations: Array | None = None
    entry_weights: Array | None = None
    entry_features: Array | None = None
    entry_senders: Array | None = None
    entry_edges: Array | None = None

    @property
    def num_targets(self) -> int:
        return int(self.senders.shape[-2])

    @property
    def width(self) -> int:
        return int(self.senders.shape[-1])

    @property
    def mask(self) -> Array:
        """Which entries are neighbours, bool `[num_targets, width]`."""
        xp = np if isinstance(self.num_neighbors, np.ndarray) else jnp
        counts = xp.expand_dims(self.num_neighbors, -1)
        columns = xp.arange(self.width, dtype=np.int32).reshape((1,) * (counts.ndim - 1) + (self.width,))
        return columns < counts

    def compressed(self) -> SemanticGraph:
        """The `edges` view.

        Raises:
            ValueError: the table was made without it.
        """
        if self.edges is None:
            raise ValueError(f"sampled table {self.name!r} was made without its 'edges' view, which 'native' reads")
        return self.edges

    def global_ids(self) -> tuple[Array, Array]:
        """`sender_ids` and `receiver_ids`, which the dropout hash reads.

        Raises:
            ValueError: the table has none.
        """
        if self.sender_ids is None or self.receiver_ids is None:
            raise ValueError(f"dropout on {self.name!r} reads global ids; take the table from SampledBlocks.table")
        return self.sender_ids, self.receiver_ids


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SampledBlocks:
    """All hops of one mini-batch; hop 0 starts at the seeds, so a model's last layer reads `hops[0]`.

    Attributes:
        nodes: node type -> int32 `[capacities[-1][type]]` global ids by slot, `PADDING` where there is none.
        hops: for each hop, relation or metapath -> its table; those without targets are absent.
        added: int32 `[num_hops + 1, num_types]`, slots filled by each hop (hop 0: the seeds), by `node_types`.
        overflowed: bool scalar; a hop met more vertices than it has slots, so that the batch is invalid and must be
            sampled again with larger capacities. False from the host sampler, which chooses capacities that fit.
        capacities: for each hop and the end, node type -> slots; a type that cannot be met yet is absent.
        node_types: the order of the columns of `added`.
    """

    nodes: Mapping[str, Array]
    hops: tuple[Mapping[str, NeighborTable], ...]
    added: Array
    overflowed: Array
    capacities: "tuple[FrozenCounts, ...]" = dataclasses.field(metadata={"static": True})
    node_types: tuple[str, ...] = dataclasses.field(metadata={"static": True})

    @property
    def num_hops(self) -> int:
        return len(self.hops)

    def frontier(self, hop: int, node_type: str) -> Array:
        """Global ids of a hop's vertices, int32 `[capacities[hop][node_type]]`; hop `num_hops` is the inputs."""
        return self.nodes[node_type][..., : self.capacities[hop][node_type]]

    def table(self, hop: int, name: str, source: str, target: str) -> NeighborTable:
        """The table of `hops[hop][name]` with the global ids of both sides, which the dropout hash reads."""
        table, senders = self.hops[hop][name], self.frontier(hop + 1, source)
        if table.entry_senders is not None:
            senders = senders[table.entry_senders.reshape(-1)]
        return dataclasses.replace(table, sender_ids=senders, receiver_ids=self.frontier(hop, target))

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))


@dataclasses.dataclass(frozen=True)
class FrozenCounts:
    """A small hashable node type -> count mapping, for static fields of pytrees."""

    items: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "FrozenCounts":
        return cls(tuple((name, int(count)) for name, count in counts.items() if count > 0))

    def __getitem__(self, name: str) -> int:
        return dict(self.items)[name]

    def __contains__(self, name: str) -> bool:
        return name in dict(self.items)

    def get(self, name: str, default: int = 0) -> int:
        return dict(self.items).get(name, default)

    def as_dict(self) -> dict[str, int]:
        return dict(self.items)
