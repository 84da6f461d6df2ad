"""OnFields: a trained model as a function of a node's receptive field alone, in operations that have all gradients."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.inference.new_rows import LearntRows
from jhgnn.nn.inputs import GraphInputs, GraphSpec
from jhgnn.nn.reduction import Partial
from jhgnn.stores.host import HostRows
from jhgnn.training.state import Params
from jhgnn.training.whole_graph import WholeGraph

IMPLEMENTATION = "segment"
SPARSE_IMPLEMENTATION = "rows"


class OnFields(NamedTuple):
    """What a receptive field is run with.

    Attributes:
        structure: of the model with its head; it aggregates by `segment`.
        params: on the device, without the rows of tables.
        edges: semantic graph -> its edges, which may lie in a file.
        inputs: rows of every type that the first layer reads, features or learnt.
        learnt: says which nodes have no row.
        sums: of each layer, over all targets, where the fusion depends on them; else none.
    """

    structure: nnx.GraphDef
    params: Params
    edges: Mapping[str, EdgeSet]
    inputs: HostRows
    learnt: LearntRows
    sums: tuple[Any, ...] = ()


def for_fields(spec: GraphSpec) -> GraphSpec:
    """The same sizes with implementations that have gradients for edges and for sparse features."""
    return dataclasses.replace(
        spec,
        implementations=dict.fromkeys(spec.implementations, IMPLEMENTATION),
        sparse_implementation=SPARSE_IMPLEMENTATION,
    )


def sums_over_targets(whole: WholeGraph, params: Params) -> tuple[Any, ...]:
    """What each layer's fusion sums over all targets, from one pass over the whole graph; `params` on the device."""

    def sums(params: Params, inputs: GraphInputs) -> tuple[Any, ...]:
        found: list[Any] = []

        def reduce(partial: Partial) -> Any:
            found.append(partial.values)
            return partial.values

        nnx.merge(whole.structure, params).encode(inputs, None, reduce)
        return tuple(found)

    return jax.tree.map(np.asarray, jax.jit(sums)(params, whole.inputs))


def in_edges(graph: SemanticGraph) -> EdgeSet:
    """A placed graph's edges on the host."""
    return EdgeSet(np.asarray(graph.incoming.indptr, np.int64), np.asarray(graph.incoming.indices, np.int32))
