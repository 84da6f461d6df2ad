"""Other orders of vertices, and of semantic graphs, that might be read with more reuse."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_metapath, build_relation

Order = tuple[np.ndarray, np.ndarray]
"""New numbers of senders and of receivers: `[num_sources]` and `[num_targets]`, each a permutation."""


def renumbered(graph: SemanticGraph, order: Order) -> SemanticGraph:
    """The same graph with its vertices numbered anew."""
    senders, receivers = order
    rows = np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))
    return SemanticGraph.from_pairs(
        senders[graph.incoming.indices], receivers[rows], graph.num_sources, graph.num_targets, graph.name
    )


def by_degree(graph: SemanticGraph) -> Order:
    """Those with most edges first, so that hubs stand side by side."""
    return _numbers(-np.diff(graph.outgoing.indptr)), _numbers(-np.diff(graph.incoming.indptr))


def by_breadth(graph: SemanticGraph) -> Order:
    """As a breadth-first search reaches them, from the vertex with most edges of each component."""
    joined, together = _joined(graph)
    count = joined.shape[0]
    components = csgraph.connected_components(joined, directed=False)[1]
    heaviest_first = np.argsort(-np.diff(joined.indptr), kind="stable")
    _, places = np.unique(components[heaviest_first], return_index=True)
    starts = heaviest_first[places]  # of each component
    # One search from a vertex that leads to every start reaches each component in the order of its own search. Searches
    # of their own would take the number of vertices times that of components.
    ahead = sparse.csr_array((np.ones(len(starts), np.int8), (np.zeros(len(starts), np.int64), starts)), (1, count))
    rooted = sparse.bmat([[joined, None], [ahead, sparse.csr_array((1, 1), dtype=np.int8)]], format="csr")
    reached = csgraph.breadth_first_order(rooted, count, return_predecessors=False)[1:]
    return _split(reached[np.argsort(places[components[reached]], kind="stable")], graph, together)


def by_bandwidth(graph: SemanticGraph) -> Order:
    """Reverse Cuthill-McKee: neighbours get numbers close to each other."""
    joined, together = _joined(graph)
    return _split(csgraph.reverse_cuthill_mckee(joined, symmetric_mode=True), graph, together)


def by_middle(heterograph: HeteroGraph, metapath: Metapath, graph: SemanticGraph) -> Order:
    """By the vertex that most metapaths of each end turn at: authors by venue, for author-paper-venue-paper-author.

    Metapaths share their neighbours through the vertices in their middle; ends of one middle vertex that stand side by
    side gather nearly the same rows. Only for metapaths that return the way they came.
    """
    half = metapath.relations[: len(metapath.relations) // 2]
    if len(half) == 1:
        middle = build_relation(heterograph, half[0])
    else:
        middle = build_metapath(heterograph, Metapath("half", half))
    weights = np.diff(middle.incoming.indptr)  # ends of each middle vertex
    first = np.full(middle.num_sources, -1, np.int64)
    ends = np.repeat(np.arange(middle.num_sources), np.diff(middle.outgoing.indptr))
    middles = np.asarray(middle.outgoing.indices)
    ascending = np.lexsort((-middles, weights[middles]))  # the heaviest is written last, and stays
    first[ends[ascending]] = middles[ascending]
    numbers = _numbers(first)
    return numbers, numbers


ORDERS: dict[str, Callable[[SemanticGraph], Order]] = {
    "degree": by_degree,
    "breadth first": by_breadth,
    "Cuthill-McKee": by_bandwidth,
}


def shuffled(graph: SemanticGraph, seed: int = 0) -> Order:
    """At random: how much of the locality is that of the order in which the data came."""
    rng = np.random.default_rng(seed)
    senders = rng.permutation(graph.num_sources)
    return senders, senders if _same_ends(graph) else rng.permutation(graph.num_targets)


def by_shared_rows(read: Sequence[np.ndarray], *, most: bool = True) -> list[int]:
    """An order of semantic graphs: after each, the one that shares most rows with it (HiHGNN's similarity), or least.

    Args:
        read: the rows that each graph gathers, without duplicates, numbered across all tables.
        most: False for the order to avoid.
    """
    left = list(range(len(read)))
    order = [left.pop(0)] if left else []
    while left:
        shared = [len(np.intersect1d(read[order[-1]], read[other], assume_unique=True)) for other in left]
        best = int(np.argmax(shared) if most else np.argmin(shared))
        order.append(left.pop(best))
    return order


def _same_ends(graph: SemanticGraph) -> bool:
    """Whether senders and receivers are the same vertices, as in metapaths that return the way they came."""
    if graph.num_sources != graph.num_targets:
        return False
    return graph.outgoing is graph.incoming or (
        np.array_equal(graph.outgoing.indptr, graph.incoming.indptr)
        and np.array_equal(graph.outgoing.indices, graph.incoming.indices)
    )


def _joined(graph: SemanticGraph) -> tuple[sparse.csr_array, bool]:
    """The symmetric matrix of the vertices, once where both ends are the same, else senders and then receivers."""
    shape = (graph.num_targets, graph.num_sources)
    data = np.ones(graph.num_edges, np.int8)
    matrix = sparse.csr_array((data, graph.incoming.indices, graph.incoming.indptr), shape=shape)
    if _same_ends(graph):
        return matrix, True
    return sparse.csr_array(sparse.bmat([[None, matrix.T], [matrix, None]], format="csr")), False


def _split(order: np.ndarray, graph: SemanticGraph, together: bool) -> Order:
    """New numbers from the order of all vertices."""
    if together:
        numbers = _inverse(order)
        return numbers, numbers
    senders = order[order < graph.num_sources]
    receivers = order[order >= graph.num_sources] - graph.num_sources
    return _inverse(senders), _inverse(receivers)


def _numbers(keys: np.ndarray) -> np.ndarray:
    return _inverse(np.argsort(keys, kind="stable"))


def _inverse(order: np.ndarray) -> np.ndarray:
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    return numbers
