"""StackedRelations: all relations between two node types as one graph, so that one pass aggregates them together.

A knowledge graph has hundreds of relations of a few thousand edges each; a kernel a relation would spend its time on
starting, and a projection of every node for each of them would not fit in memory.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jhgnn.graph.hetero_graph import EdgeSet
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.schema import Relation
from jhgnn.graph.semantic_graph import SemanticGraph

Array = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class StackedRelations:
    """The edges of several relations from one type to another, or those that a mini-batch drew.

    Attributes:
        graph: all their edges, within a receiver by relation, then by sender; or a sampled table.
        relation_of_edge: int32 `[num_edges]`, in the order of `graph.incoming`: position in `relations`; of a table for
            each entry, `[num_targets, width]`.
        group_of_edge: int32 `[num_edges]`, ascending: which (receiver, relation) an edge belongs to; None of a table.
        weights: float32 like `relation_of_edge`, 1 / edges of the same receiver and relation, so that their sums are
            those of means; of a table as `jhgnn.sampling.entries` says.
        num_groups: how many (receiver, relation) there are.
        relations: names, as `str(relation)`.
        source, target: the node types.
        implementation: of `neighbor_sum`.
    """

    graph: SemanticGraph | NeighborTable
    relation_of_edge: Array
    group_of_edge: Array
    weights: Array
    num_groups: int = dataclasses.field(metadata={"static": True})
    relations: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    source: str = dataclasses.field(metadata={"static": True})
    target: str = dataclasses.field(metadata={"static": True})
    implementation: str = dataclasses.field(metadata={"static": True})


def stack_relations(
    edges: Mapping[Relation, EdgeSet], num_sources: int, implementation: str, views: Collection[str] = ("coo",)
) -> tuple[StackedRelations, np.ndarray]:
    """Stacks relations that share both node types, on the host; NumPy arrays, with the views that are named.

    Returns:
        the stack, and for each of its edges where it stands among the edges of all relations joined in the order given.
    """
    relations: Sequence[Relation] = tuple(edges)
    source, target = relations[0].source, relations[0].target
    num_targets = edges[relations[0]].num_targets
    senders = np.concatenate([own.senders for own in edges.values()])
    receivers = np.concatenate([own.receivers for own in edges.values()])
    numbers = np.repeat(np.arange(len(relations), dtype=np.int32), [own.num_edges for own in edges.values()])
    order = np.lexsort((senders, numbers, receivers))
    senders, receivers, numbers = senders[order], receivers[order], numbers[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (receivers[1:] != receivers[:-1]) | (numbers[1:] != numbers[:-1])
    groups = (np.cumsum(fresh) - 1).astype(np.int32)
    indptr = np.zeros(num_targets + 1, np.int64)
    np.cumsum(np.bincount(receivers, minlength=num_targets), out=indptr[1:])
    name = f"{source}_to_{target}"
    graph = SemanticGraph.from_incoming(indptr, senders, num_sources, name).with_views(views)
    stack = StackedRelations(
        graph=graph,
        relation_of_edge=numbers,
        group_of_edge=groups,
        weights=(1.0 / np.bincount(groups)[groups]).astype(np.float32),
        num_groups=int(groups[-1]) + 1 if len(groups) else 0,
        relations=tuple(str(relation) for relation in relations),
        source=source,
        target=target,
        implementation=implementation,
    )
    return stack, order
