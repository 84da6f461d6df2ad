"""Which edges show a link that is to be predicted, so that a batch can leave them out of message passing.

A link is shown by every edge of its relation between its two nodes, and by every edge that says the same backwards: one
of a relation that holds the reverse edges, or of the link's own relation where that is symmetric.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.link_split import edge_positions, reverses
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


class ShownLinks(NamedTuple):
    """The training link that each edge shows, int32 `[num_edges]` each: its position, or the number of links for none.

    `forwards` is the link that the edge shows as one of the link's own relation, `backwards` as one of a reverse.
    """

    forwards: Array
    backwards: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class TargetEdges:
    """`ShownLinks` of a whole graph's or stack's edges, with what is needed to take means without them.

    Attributes:
        shown: the links that the edges show.
        group: int32 `[num_edges]`, ascending: edges of one group have one mean, such as those of one receiver.
        num_groups: how many groups there are.
    """

    shown: ShownLinks
    group: Array
    num_groups: int = dataclasses.field(metadata={"static": True})


def shown_links(
    graph: HeteroGraph, links: LinkTriples, edges: Mapping[Relation, EdgeSet]
) -> dict[Relation, ShownLinks]:
    """The training links that the edges of each relation show; relations whose edges show none are absent.

    Args:
        graph: the graph with all its edges, also the held-out ones; from it, reverse relations are recognised.
        links: the links, of which those for training count.
        edges: those that messages pass over, with the reverse relations that were added.
    """
    train = links.triples["train"]
    none = len(train)
    shown: dict[Relation, ShownLinks] = {}

    def of(relation: Relation) -> ShownLinks:
        if relation not in shown:
            empty = np.full(edges[relation].num_edges, none, np.int32)
            shown[relation] = ShownLinks(empty, empty.copy())
        return shown[relation]

    for number, relation in enumerate(links.relations):
        ids = np.flatnonzero(train[:, 1] == number).astype(np.int32)
        heads, tails = train[ids, 0], train[ids, 2]
        if relation in edges:
            pairs, positions = edge_positions(edges[relation], heads, tails)
            of(relation).forwards[positions] = ids[pairs]
        for reverse in sorted({*reverses(graph, relation), relation.reversed()} & edges.keys()):
            pairs, positions = edge_positions(edges[reverse], tails, heads)
            of(reverse).backwards[positions] = ids[pairs]
    return shown


def edge_weights(excluded: Mapping[str, TargetEdges], ids: jax.Array, num_links: int) -> dict[str, jax.Array]:
    """Weights that turn a sum of messages into their mean over all edges but those that show some training links.

    Args:
        ids: int32 `[batch]`, the links' positions in the training split; -1 for none.

    Returns:
        float32 `[num_edges]` for each graph and stack: 0 for an edge left out, else 1 / edges that stay in its group.
    """
    batch = jnp.zeros(num_links + 1, bool).at[jnp.where(ids >= 0, ids, num_links)].set(True).at[num_links].set(False)
    weights = {}
    for name, edges in excluded.items():
        kept = ~(batch[edges.shown.forwards] | batch[edges.shown.backwards])
        # Counted as integers: a GPU adds those at once, and floats one after the other where they meet.
        counts = jax.ops.segment_sum(kept.astype(jnp.int32), edges.group, edges.num_groups, indices_are_sorted=True)
        weights[name] = kept / jnp.maximum(counts, 1).astype(jnp.float32)[edges.group]
    return weights
