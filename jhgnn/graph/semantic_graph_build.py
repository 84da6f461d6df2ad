"""Semantic Graph Build (SGB): relations and metapaths of a heterograph as semantic graphs, on the host.

A metapath's graph is the boolean product of its relations: an edge wherever at least one instance exists. Sizes are
checked before anything large is computed (`size_estimate`), products are ordered by expected size (`metapath_plan`),
evaluated with halves and shared sub-products reused (`chain_products`), and built once (`build_cache`).
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.build_cache import cache_key, load_cached, store_cached
from jhgnn.graph.chain_products import ChainProducts, shared_chains
from jhgnn.graph.default_metapaths import default_metapaths
from jhgnn.graph.factors import Chain, Factors, relation_counts
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.metapath_product import (
    PEAK_BYTES_PER_COUNTED_EDGE,
    PEAK_BYTES_PER_EDGE,
    ProductTooLargeError,
)
from jhgnn.graph.schema import Metapath, Relation
from jhgnn.graph.semantic_graph import Csr, SemanticGraph
from jhgnn.graph.size_estimate import SizeEstimate, estimate_num_edges, refuse_if_too_large, too_large
from jhgnn.runtime.memory_limit import default_memory_limit_bytes

_log = logging.getLogger("jhgnn.sgb")


def build_relation(graph: HeteroGraph, relation: Relation) -> SemanticGraph:
    """One relation as a semantic graph, named `str(relation)`; parallel edges stay as in the file.

    Raises:
        InputError: the graph lacks the relation, or it has 2**31 edges or more.
    """
    if relation not in graph.edges:
        known = ", ".join(str(known) for known in graph.edges)
        raise InputError(f"graph {graph.name!r} has no relation {str(relation)!r}; known: {known}")
    edges = graph.edges[relation]
    return SemanticGraph.from_incoming(edges.indptr, edges.senders, graph.num_nodes[relation.source], str(relation))


@overload
def build_metapath(
    graph: HeteroGraph, metapath: Metapath, *, memory_limit_bytes: int | None = None, counts: Literal[False] = False
) -> SemanticGraph: ...


@overload
def build_metapath(
    graph: HeteroGraph, metapath: Metapath, *, memory_limit_bytes: int | None = None, counts: Literal[True]
) -> tuple[SemanticGraph, np.ndarray]: ...


def build_metapath(
    graph: HeteroGraph, metapath: Metapath, *, memory_limit_bytes: int | None = None, counts: bool = False
) -> SemanticGraph | tuple[SemanticGraph, np.ndarray]:
    """Composes a metapath's relations: one edge for every pair that at least one instance joins.

    Pairs of a node with itself stay where an instance joins them, as Table 3 of
    "Characterizing and Understanding HGNN Training on GPUs" counts.

    Args:
        memory_limit_bytes: for the build at its worst moment; None takes half of the memory available now.
        counts: also return how many instances each edge stands for, int64 `[num_edges]`, aligned with the in-edges;
            a parallel edge of a relation makes an instance of its own.

    Raises:
        InputError: an unknown relation; or the graph would not fit: the message has the estimate and the way out.
    """
    limit_bytes = default_memory_limit_bytes() if memory_limit_bytes is None else memory_limit_bytes
    relation_counts(graph, metapath)
    products = ChainProducts(Factors(graph, counts=counts), limit_bytes=limit_bytes)
    chain = products.factors.chain(metapath.relations)
    if not counts:
        return _build(products, chain, metapath.name, limit_bytes)
    return _build_counted(products, chain, metapath.name, limit_bytes)


def build_semantic_graphs(
    graph: HeteroGraph,
    metapaths: Sequence[Metapath] | None,
    *,
    memory_limit_bytes: int | None = None,
    cache_dir: Path | None = None,
) -> dict[str, SemanticGraph]:
    """All relations (`metapaths` None), named `str(relation)`, or the given metapaths by their names.

    A metapath given twice is built once, with a note in the log `jhgnn.sgb`. Sub-products that several metapaths share
    are computed once. Metapath graphs are cached by content; relations are not, since checking a cached copy reads as
    many bytes as building it.

    Args:
        memory_limit_bytes: for all graphs together, at the worst moment; None takes half of the memory available now.
        cache_dir: where built graphs are kept between runs; None keeps none.

    Raises:
        InputError: an unknown relation; two different metapaths of one name; a graph that would not fit; a cache folder
            that cannot be written.
    """
    limit_bytes = default_memory_limit_bytes() if memory_limit_bytes is None else memory_limit_bytes
    if metapaths is None:
        return _build_relations(graph, limit_bytes)
    distinct = _distinct(metapaths)
    products = ChainProducts(Factors(graph), limit_bytes=limit_bytes)
    chains: dict[str, Chain] = {}
    for metapath in distinct:
        relation_counts(graph, metapath)
        chains[metapath.name] = products.factors.chain(metapath.relations)
    products.keep(shared_chains(products.factors, list(chains.values())))
    built: dict[str, SemanticGraph] = {}
    for metapath in sorted(distinct, key=lambda metapath: len(metapath.relations)):  # short ones are parts of long ones
        held = sum(one.nbytes for one in built.values())
        key = cache_key(graph, metapath) if cache_dir is not None else ""
        found = load_cached(cache_dir, key, metapath.name) if cache_dir is not None else None
        if found is None:
            found = _build(products, chains[metapath.name], metapath.name, max(0, limit_bytes - held))
            if cache_dir is not None:
                store_cached(cache_dir, key, found)
        built[metapath.name] = found
    return {metapath.name: built[metapath.name] for metapath in distinct}


def _build_relations(graph: HeteroGraph, limit_bytes: int) -> dict[str, SemanticGraph]:
    num_edges = graph.num_edges
    if num_edges * PEAK_BYTES_PER_EDGE > limit_bytes:
        raise too_large(f"{graph.name}, all relations", f"{num_edges:,}", num_edges, limit_bytes, PEAK_BYTES_PER_EDGE)
    return {str(relation): build_relation(graph, relation) for relation in graph.schema.relations}


def _distinct(metapaths: Sequence[Metapath]) -> list[Metapath]:
    by_relations: dict[tuple[Relation, ...], Metapath] = {}
    by_name: dict[str, Metapath] = {}
    for metapath in metapaths:
        first = by_relations.setdefault(metapath.relations, metapath)
        if first is not metapath:
            _log.warning("metapath %r is given twice (as %r before): built once", metapath.name, first.name)
            continue
        if metapath.name in by_name:
            raise InputError(
                f"two different metapaths are named {metapath.name!r}:"
                f" {_shown(by_name[metapath.name])} and {_shown(metapath)}; give each its own name"
            )
        by_name[metapath.name] = metapath
    return list(by_name.values())


def _shown(metapath: Metapath) -> str:
    return ",".join(str(relation) for relation in metapath.relations)


def _build(products: ChainProducts, chain: Chain, name: str, limit_bytes: float) -> SemanticGraph:
    product = _product(products, chain, name, limit_bytes, PEAK_BYTES_PER_EDGE)
    if products.is_symmetric(chain):
        # By columns a matrix reads as its transpose by rows, here itself; the conversion sorts on the way.
        incoming = outgoing = _csr(product if product.has_sorted_indices else product.tocsc())
    elif product.has_sorted_indices:
        incoming, outgoing = _csr(product), _csr(product.tocsc())
    else:
        columns = product.tocsc()
        incoming, outgoing = _csr(columns.tocsr()), _csr(columns)
    return SemanticGraph(incoming, outgoing, None, None, product.shape[1], product.shape[0], name)


def _build_counted(
    products: ChainProducts, chain: Chain, name: str, limit_bytes: float
) -> tuple[SemanticGraph, np.ndarray]:
    instances = np.ones(products.factors.matrix(chain[-1]).shape[1])
    for key in reversed(chain):
        instances = products.factors.matrix(key).astype(np.float64) @ instances
    if instances.max(initial=0.0) >= 2.0**62:
        raise InputError(f"metapath {name!r} has about {instances.max():.1e} instances into one node, beyond int64")
    product = _product(products, chain, name, limit_bytes, PEAK_BYTES_PER_COUNTED_EDGE)
    columns = product.tocsc()
    incoming = columns.tocsr()
    graph = SemanticGraph(_csr(incoming), _csr(columns), None, None, product.shape[1], product.shape[0], name)
    return graph, np.asarray(incoming.data)


def _product(
    products: ChainProducts, chain: Chain, name: str, limit_bytes: float, bytes_per_edge: int
) -> sparse.csr_array:
    plan = products.plan(chain)
    refuse_if_too_large(products, chain, plan, name=name, limit_bytes=limit_bytes, bytes_per_edge=bytes_per_edge)
    most = min(limit_bytes / bytes_per_edge, 2**31 - 1)
    try:
        return products.product(chain, plan, most)
    except ProductTooLargeError as error:  # the estimate was too low: blocks were counted on the way
        reached = f"over {error.num_edges:,} ({error.share:.0%} of its rows built)"
        raise too_large(name, reached, error.num_edges, limit_bytes, bytes_per_edge) from None


def _csr(matrix: sparse.csr_array | sparse.csc_array) -> Csr:
    return Csr(np.asarray(matrix.indptr, np.int32), np.asarray(matrix.indices, np.int32))


__all__ = [
    "SizeEstimate",
    "build_metapath",
    "build_relation",
    "build_semantic_graphs",
    "default_memory_limit_bytes",
    "default_metapaths",
    "estimate_num_edges",
]
