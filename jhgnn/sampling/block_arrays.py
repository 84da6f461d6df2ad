"""The one description of a mini-batch's arrays: which there are, and their shapes, from plan and capacities.

The host sampler fills these arrays, programs are compiled for their shapes, and compressing a table adds more of them.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Coo, Csr, SemanticGraph
from jhgnn.sampling.plan import Capacities, SamplingPlan

Array = Any


class EntryFeatures(NamedTuple):
    """Features of one draw's entries: their columns, and whether each entry is a sender of its own."""

    columns: int
    splits: bool


class Make(Protocol):
    """Makes one array, or its shape."""

    def __call__(self, *shape: int, dtype: Any = jnp.int32) -> Array: ...


def block_arrays(
    plan: SamplingPlan,
    capacities: Capacities,
    make: Make,
    *,
    compressed: Collection[str] = (),
    weighted: Collection[str] = (),
    featured: Mapping[str, EntryFeatures] | None = None,
) -> SampledBlocks:
    """The blocks of a batch with arrays that `make` makes.

    Args:
        compressed: draws whose tables have `edges` beside them.
        weighted: draws whose entries have relations and weights.
        featured: by draw, the features of its entries' edges; None: no draw has any.
    """
    hops = []
    for hop in range(plan.num_hops):
        tables = {}
        for draw in plan.draws_at(hop):
            targets, width = capacities[hop][draw.target], draw.widths[hop]
            sources, has_weights = capacities[hop + 1][draw.source], draw.name in weighted
            has_edges = draw.name in compressed
            features = (featured or {}).get(draw.name)
            splits = features is not None and features.splits
            sources = targets * width if splits else sources
            tables[draw.name] = NeighborTable(
                senders=make(targets, width),
                num_neighbors=make(targets),
                visits=make(targets, width) if draw.num_walks else None,
                sender_ids=None,
                receiver_ids=None,
                num_sources=sources,
                name=draw.name,
                edges=_edge_arrays(targets, width, sources, draw.name, make, has_weights) if has_edges else None,
                edge_entries=make(targets * width) if has_edges and has_weights else None,
                entry_relations=make(targets, width) if has_weights else None,
                entry_weights=make(targets, width, dtype=jnp.float32) if has_weights else None,
                entry_features=make(targets, width, features.columns, dtype=jnp.float32) if features else None,
                entry_senders=make(targets, width) if splits else None,
            )
        hops.append(tables)
    return SampledBlocks(
        nodes={name: make(count) for name, count in capacities[-1].items},
        hops=tuple(hops),
        added=make(plan.num_hops + 1, len(plan.node_types)),
        overflowed=make(dtype=jnp.bool_),
        capacities=capacities,
        node_types=plan.node_types,
    )


def _edge_arrays(targets: int, width: int, sources: int, name: str, make: Make, weighted: bool) -> SemanticGraph:
    """A table's edges in both directions, as many as it has entries, and a receiver for padding (`compressed.py`)."""
    count = targets * width
    return SemanticGraph(
        incoming=Csr(make(targets + 2), make(count)),
        outgoing=Csr(make(sources + 1), make(count)),
        coo=Coo(make(count), make(count), make(count)) if weighted else None,
        adjacency=None,
        num_sources=sources,
        num_targets=targets + 1,
        name=name,
    )
