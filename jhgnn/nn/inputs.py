"""What a model reads: a whole graph (`GraphInputs`), a device's share of one (`HaloInputs`), the receptive field of
some targets (`FieldInputs`) or a mini-batch (`SampledInputs`); and the sizes that it is built for, `GraphSpec`.

All of them show a layer the same thing, a `Block`. The rows that a layer makes are the first of those that it reads, of
each type. Dropout is hashed from a node's id in the whole graph, so a part of the graph computes what the whole does.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.erased import NAME as ERASED
from jhgnn.graph.erased import ids_of_type
from jhgnn.graph.packed import PackedGraphs
from jhgnn.graph.sampled import FrozenCounts, NeighborTable, SampledBlocks
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.stacked import StackedRelations
from jhgnn.nn.block import Block
from jhgnn.nn.halo import HaloInputs
from jhgnn.nn.reuse import KeptRows, ReusedRows
from jhgnn.ops.distinct_rows import distinct_rows
from jhgnn.ops.indexed_rows import indexed_rows
from jhgnn.sampling.entry_features import edge_features_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """Features of each node type that has any, and the semantic graphs by name; the rest as in `Block`.

    With `packed`, by hop, the graphs of each layer come as one.
    """

    features: dict[str, jax.Array | SparseFeatures]
    graphs: dict[str, SemanticGraph]
    weights: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    stacks: dict[str, StackedRelations] = dataclasses.field(default_factory=dict)
    edge_features: dict[str, EdgeFeatures] = dataclasses.field(default_factory=dict)
    packed: tuple[PackedGraphs | None, ...] = ()

    def block(self, hop: int, num_nodes: Mapping[str, int]) -> Block:
        """The whole graph, for every layer."""
        packed = self.packed[hop] if self.packed else None
        features = self.edge_features
        return Block(self.graphs, num_nodes, {}, self.weights, self.stacks, edge_features=features, packed=packed)

    def rows_read(self, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a layer reads of the rows that the one before it made: those."""
        return rows

    def table_rows(self, table: jax.Array, _node_type: str) -> jax.Array:
        """The rows of an embedding table that the first layer reads: all."""
        return table

    def rows_of(self, rows: jax.Array, ids: jax.Array) -> jax.Array:
        """The last layer's rows of the targets `ids`."""
        return indexed_rows(rows, ids)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FieldInputs:
    """The receptive field of some targets (`jhgnn.graph.receptive_field`): their rows are exact, there are no others.

    Attributes:
        features: of the field's rows, `[counts[-1][type], width]`.
        graphs: hop -> the edges into its rows, by semantic graph name; hop 0 are the targets.
        ids: node type -> int32 `[rows]`, in the whole graph.
        row_of: type without features -> int32 `[num_nodes]`, each node's row, or -1.
        counts: hop -> rows of each type, the first of the type's.
        packed: hop -> the edges into its rows as one graph, or none.
    """

    features: dict[str, jax.Array | SparseFeatures]
    graphs: tuple[dict[str, SemanticGraph], ...]
    ids: dict[str, jax.Array]
    row_of: dict[str, jax.Array]
    counts: tuple[FrozenCounts, ...] = dataclasses.field(metadata={"static": True})
    packed: tuple[PackedGraphs | None, ...] = ()

    def block(self, hop: int, _num_nodes: Mapping[str, int]) -> Block:
        """The edges into a hop's rows, which the layer makes."""
        read = self.counts[hop + 1].as_dict()
        ids = {node_type: self.ids[node_type][:count] for node_type, count in read.items()}
        packed = self.packed[hop] if self.packed else None
        return Block(self.graphs[hop], self.counts[hop].as_dict(), ids, packed=packed)

    def rows_read(self, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a layer reads of the rows that the one before it made: those."""
        return rows

    def table_rows(self, table: jax.Array, node_type: str) -> jax.Array | None:
        """The rows of an embedding table that the first layer reads, or None."""
        if node_type not in self.counts[-1]:
            return None
        return distinct_rows(table, self.ids[node_type], self.row_of[node_type])

    def rows_of(self, rows: jax.Array, ids: jax.Array) -> jax.Array:
        """The last layer's rows of the targets `ids`: all there are, since the field is theirs."""
        assert rows.shape[0] == ids.shape[0]
        return rows


class SampledStack(NamedTuple):
    """A draw over several relations at once: its name, those relations, and their types."""

    name: str
    relations: tuple[str, ...]
    source: str
    target: str
    implementation: str
    """Of `neighbor_sum`, where the table comes with its compressed edges."""

    def of_table(self, table: NeighborTable) -> StackedRelations:
        """The table's relations; over its compressed edges, where there are some."""
        relations, weights = table.entry_relations, table.entry_weights
        assert relations is not None
        assert weights is not None
        graph: SemanticGraph | NeighborTable = table
        if table.edges is not None:
            graph = table.edges
            relations, weights = (each.reshape(-1)[table.edge_entries] for each in (relations, weights))
        return StackedRelations(
            graph, relations, None, weights, 0, self.relations, self.source, self.target, self.implementation
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SampledInputs:
    """One mini-batch, or one device's share of it.

    Attributes:
        features: rows of the input frontier of each type that has features, `[capacities[-1][type], width]`.
        blocks: its neighbour tables.
        endpoints: relation or metapath, source and target type of each table.
        offsets: where types are erased, each type's first node and number of nodes; else none.
        stacks: the tables whose entries are of several relations.
        kept: the first layer's sums over neighbours of hot vertices, by type, where they are reused; else none.
        number: uint32 scalar, the batch's, where rows are reused.
        step: int32 scalar, updates done, where rows are reused: their age is checked against it.
    """

    features: dict[str, Any]
    blocks: SampledBlocks
    endpoints: tuple[tuple[str, str, str], ...] = dataclasses.field(metadata={"static": True})
    offsets: tuple[tuple[str, int, int], ...] = dataclasses.field(default=(), metadata={"static": True})
    stacks: tuple[SampledStack, ...] = dataclasses.field(default=(), metadata={"static": True})
    kept: Mapping[str, KeptRows] = dataclasses.field(default_factory=dict)
    number: Any = None
    step: Any = None

    def block(self, hop: int, _num_nodes: Mapping[str, int]) -> Block:
        """The tables into a hop's frontier; hop 0 are the targets, which the last layer makes."""
        tables = self.blocks.hops[hop]
        return Block(
            graphs={
                name: self.blocks.table(hop, name, source, target)
                for name, source, target in self.endpoints
                if name in tables
            },
            num_rows=self.blocks.capacities[hop].as_dict(),
            ids={
                node_type: self.blocks.frontier(hop + 1, node_type)
                for node_type, _ in self.blocks.capacities[hop + 1].items
            },
            stacks={stack.name: stack.of_table(tables[stack.name]) for stack in self.stacks if stack.name in tables},
            degrees=self.features.get(ERASED),
            targets={
                node_type: self.blocks.frontier(0, node_type) >= 0 for node_type, _ in self.blocks.capacities[0].items
            },
            reused=self._reused() if self.kept and hop == self.blocks.num_hops - 1 else {},
            edge_features={
                name: edge_features_of(table) for name, table in tables.items() if table.entry_features is not None
            },
        )

    def _reused(self) -> dict[str, ReusedRows]:
        """What the first layer takes over of its sums over neighbours."""
        if self.number is None or self.step is None:
            raise ValueError("rows that are reused need the number of the batch and the updates done")
        made = self.blocks.capacities[-2]
        return {
            node_type: kept.read(self.blocks.frontier(-2, node_type), self.number, self.step)
            for node_type, kept in self.kept.items()
            if node_type in made
        }

    def ids(self, node_type: str) -> jax.Array:
        """Global ids of the input frontier, int32 `[slots]`; -1 in slots that hold nothing or another type."""
        return ids_of_type(self.blocks.nodes, node_type, self.offsets)

    def rows_read(self, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a layer reads of the rows that the one before it made: those."""
        return rows

    def table_rows(self, table: jax.Array, node_type: str) -> jax.Array | None:
        """The batch's rows of an embedding table, which the step puts in the table's place.

        Where types are erased, the rows of slots that hold another type are zeros.
        """
        return jnp.where((self.ids(node_type) >= 0)[:, None], table, 0.0) if self.offsets else table


ModelInputs: TypeAlias = GraphInputs | FieldInputs | SampledInputs | HaloInputs


@dataclasses.dataclass(frozen=True)
class GraphSpec:
    """The sizes that a model is built for.

    Attributes:
        num_nodes: nodes of each type.
        feature_widths: columns of each type that has features; the others get learnable embeddings.
        targets: the node types whose rows are asked for; for node classification the one to classify.
        relations: semantic graph name -> the relation it holds, for models over relations.
        metapaths: names of the semantic graphs from target to target, for HAN.
        implementations: semantic graph name -> implementation of its neighbor aggregation.
        sparse_implementation: of the projection of sparse features.
        edge_widths: columns of edge features of each relation whose edges have some that the model reads.
    """

    num_nodes: Mapping[str, int]
    feature_widths: Mapping[str, int]
    targets: tuple[str, ...]
    relations: Mapping[str, Relation]
    metapaths: tuple[str, ...]
    implementations: Mapping[str, str]
    sparse_implementation: str
    edge_widths: Mapping[str, int] = dataclasses.field(default_factory=dict)
