"""Graphs with node types that have no nodes and relations that have no edges, which are to change nothing."""

import dataclasses

import numpy as np

from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.schema import Relation, Schema

VOID, NOTHING = "void", "nothing"


def none(num_targets: int) -> EdgeSet:
    return EdgeSet.from_pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), num_targets)


def with_empties(graph: HeteroGraph) -> HeteroGraph:
    """The graph with two empty types before and behind its own, and an empty relation between every pair of types."""
    first = graph.schema.node_types[0]
    types = (VOID, *graph.schema.node_types, NOTHING)
    num_nodes = {name: graph.num_nodes.get(name, 0) for name in types}
    empty = [Relation(source, f"never_{target}", target) for source in (VOID, first) for target in types]
    empty += [Relation(first, "never_again", first), Relation(NOTHING, "never", first)]
    edges = {relation: none(num_nodes[relation.target]) for relation in empty[::2]}
    edges |= graph.edges
    edges |= {relation: none(num_nodes[relation.target]) for relation in empty[1::2]}
    return dataclasses.replace(graph, schema=Schema(types, tuple(edges)), num_nodes=num_nodes, edges=edges)
