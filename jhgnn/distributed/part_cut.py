"""One part of a heterograph, cut out: owned rows, the in-edges of owned nodes, and the halo that they reach."""

import numpy as np
from scipy import sparse

from jhgnn.distributed.numbering import Numbering
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.schema import Relation


def cut_edges(graph: HeteroGraph, relation: Relation, numbering: Numbering, part: int) -> EdgeSet:
    """The in-edges of a part's nodes: row i is its i-th owned target, senders are new ids, ascending in a row."""
    edges = graph.edges[relation]
    low, high = numbering.offsets[relation.target][part : part + 2]
    receivers = numbering.original[relation.target][low:high]
    degrees = edges.indptr[receivers + 1] - edges.indptr[receivers]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    # The edges of all rows behind each other: each row's first edge, and a step of one after it.
    positions = np.arange(indptr[-1]) + np.repeat(edges.indptr[receivers] - indptr[:-1], degrees)
    senders = numbering.new[relation.source][edges.senders[positions]]
    weights = None if edges.weights is None else edges.weights[positions]
    rows = np.repeat(np.arange(len(receivers), dtype=np.int32), degrees)
    return EdgeSet.from_pairs(senders, rows, len(receivers), weights)


def halo(edges: dict[Relation, EdgeSet], numbering: Numbering, part: int) -> dict[str, np.ndarray]:
    """The nodes of other parts that send to a part: node type -> int32 new ids, ascending; types of none are absent."""
    met: dict[str, np.ndarray] = {}
    for relation, own in edges.items():
        offsets = numbering.offsets[relation.source]
        if relation.source not in met:
            met[relation.source] = np.zeros(int(offsets[-1]), bool)
        met[relation.source][own.senders] = True
    found = {}
    for node_type, marks in met.items():
        low, high = numbering.offsets[node_type][part : part + 2]
        marks[low:high] = False
        ids = np.flatnonzero(marks).astype(np.int32)
        if len(ids):
            found[node_type] = ids
    return found


def cut_features(graph: HeteroGraph, node_type: str, numbering: Numbering, part: int) -> np.ndarray | sparse.csr_array:
    """The feature rows of a part's nodes of one type."""
    low, high = numbering.offsets[node_type][part : part + 2]
    return graph.features[node_type][numbering.original[node_type][low:high]]


def cut_links(graph: HeteroGraph, split: str, numbering: Numbering, part: int) -> np.ndarray:
    """The links of a split whose tail a part owns, in new ids and in the graph's order; int32 `[num_links, 3]`."""
    assert graph.links is not None
    triples = graph.links.triples[split].copy()
    own = np.zeros(len(triples), bool)
    for number, relation in enumerate(graph.links.relations):
        of = triples[:, 1] == number
        triples[of, 0] = numbering.new[relation.source][triples[of, 0]]
        triples[of, 2] = numbering.new[relation.target][triples[of, 2]]
        low, high = numbering.offsets[relation.target][part : part + 2]
        own |= of & (triples[:, 2] >= low) & (triples[:, 2] < high)
    return triples[own]
