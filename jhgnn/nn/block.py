"""What one layer aggregates over, whichever way of reading a graph makes it."""

import dataclasses
from collections.abc import Mapping

import jax

from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.packed import PackedGraphs
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.stacked import StackedRelations
from jhgnn.nn.reuse import ReusedRows


@dataclasses.dataclass(frozen=True)
class Block:
    """What one layer aggregates over.

    Attributes:
        graphs: relation or metapath -> its edges, from rows read to rows made; without an entry none were drawn.
        num_rows: rows to make of each type that has any: the first of those read.
        ids: node ids of the rows read, int32 `[rows]` by type; a type without an entry has all its rows, in order.
        weights: relation or stack -> float32 `[num_edges]`, with which its messages are summed in the place of their
            mean. Link prediction leaves edges out by it.
        stacks: relations that are aggregated together, by name of the stack; they are not among `graphs`.
        targets: bool `[at most num_rows]` by type: which of the first rows hold a target of the batch; a type without
            an entry has targets in all rows.
        reused: rows made of neighbours before this step, of each type that has any, for the place of the layer's own
            (`Layer.of_neighbors`).
        edge_features: relation -> its edges' features, where the model reads some.
        packed: all semantic graphs as one, which are then not among `graphs`; None: each is aggregated by itself.
        degrees: float32 `[rows, 1]`: in-degrees, in the whole erased graph, of the rows read; None: those in `graphs`.
    """

    graphs: Mapping[str, SemanticGraph | NeighborTable]
    num_rows: Mapping[str, int]
    ids: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)
    weights: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)
    stacks: Mapping[str, StackedRelations] = dataclasses.field(default_factory=dict)
    targets: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)
    degrees: jax.Array | None = None
    reused: Mapping[str, ReusedRows] = dataclasses.field(default_factory=dict)
    edge_features: Mapping[str, EdgeFeatures] = dataclasses.field(default_factory=dict)
    packed: PackedGraphs | None = None
