"""Sampled tables compressed by receiver and by sender, so that the CPU's kernels can sum along them both ways.

XLA's gradient of a gather is a scatter, which takes most of a sampled step on a CPU; with the edges of a block sorted
by sender as well, the backward pass is a sum along rows like the forward one. Shapes depend on capacities alone: as
many edges as the table has entries, of which those that are padding lead from slot 0 to a receiver of their own.
"""

import dataclasses

import jax
import numpy as np
from scipy import sparse

from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Csr, SemanticGraph


def with_edges(blocks: SampledBlocks) -> SampledBlocks:
    """The blocks (NumPy) with `edges` beside every table; with or without a leading axis of shards."""
    hops = []
    for tables in blocks.hops:
        made = {}
        for name, table in tables.items():
            if table.senders.ndim == 2:
                edges = _compressed(table, table.senders, table.num_neighbors)
            else:
                shards = [_compressed(table, *own) for own in zip(table.senders, table.num_neighbors, strict=True)]
                edges = jax.tree.map(lambda *parts: np.stack(parts), *shards)
            made[name] = dataclasses.replace(table, edges=edges)
        hops.append(made)
    return dataclasses.replace(blocks, hops=tuple(hops))


def _compressed(table: NeighborTable, senders: np.ndarray, num_neighbors: np.ndarray) -> SemanticGraph:
    targets, width = senders.shape
    capacity = targets * width
    indptr = np.zeros(targets + 2, np.int32)
    np.cumsum(num_neighbors, out=indptr[1:-1])
    count = int(indptr[-2])
    indptr[-1] = capacity
    indices = np.zeros(capacity, np.int32)
    indices[:count] = senders[np.arange(width, dtype=np.int32)[None, :] < num_neighbors[:, None]]
    # SciPy's conversion is a counting sort, several times as fast as NumPy's sorts.
    ones = np.ones(count, bool)
    by_sender = sparse.csr_array((ones, indices[:count], indptr[:-1]), shape=(targets, table.num_sources)).tocsc()
    padding = capacity - count
    own = int(by_sender.indptr[1])  # of slot 0, whose row ends with the padding, so that receivers ascend
    outgoing_indptr = np.array(by_sender.indptr, np.int32)
    outgoing_indptr[1:] += padding
    receivers = np.concatenate(
        [by_sender.indices[:own], np.full(padding, targets), by_sender.indices[own:]], dtype=np.int32
    )
    return SemanticGraph(
        incoming=Csr(indptr, indices),
        outgoing=Csr(outgoing_indptr, receivers),
        coo=None,
        adjacency=None,
        num_sources=table.num_sources,
        num_targets=targets + 1,
        name=table.name,
    )
