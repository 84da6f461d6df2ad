"""Sampled tables compressed by receiver and by sender, so that the CPU's kernels can sum along them both ways.

XLA's gradient of a gather is a scatter, which takes most of a sampled step's time on a CPU. With a table's edges sorted
by sender as well, the backward pass is a sum along rows, like the forward pass. Shapes depend on capacities alone:
there are as many edges as the table has entries. Those that are padding lead from slot 0 to a receiver of their own.
"""

import dataclasses
from collections.abc import Collection

import jax
import numpy as np
from scipy import sparse

from jhgnn.graph.sampled import NeighborTable, SampledBlocks
from jhgnn.graph.semantic_graph import Coo, Csr, SemanticGraph


def with_edges(blocks: SampledBlocks, names: Collection[str]) -> SampledBlocks:
    """The blocks (NumPy) with `edges` beside the tables of these draws; with or without a leading axis of shards."""
    hops = []
    for tables in blocks.hops:
        made = dict(tables)
        for name, table in tables.items():
            if name not in names:
                continue
            if table.senders.ndim == 2:
                edges, entries = _compressed(table, table.senders, table.num_neighbors)
            else:
                shards = [_compressed(table, *own) for own in zip(table.senders, table.num_neighbors, strict=True)]
                edges, entries = jax.tree.map(lambda *parts: np.stack(parts), *shards)
            made[name] = dataclasses.replace(table, edges=edges, edge_entries=entries)
        hops.append(made)
    return dataclasses.replace(blocks, hops=tuple(hops))


def _compressed(
    table: NeighborTable, senders: np.ndarray, num_neighbors: np.ndarray
) -> tuple[SemanticGraph, np.ndarray | None]:
    """One shard's edges; and their entries and the `coo` view, which weighted sums read, where entries have weights."""
    targets, width = senders.shape
    capacity = targets * width
    indptr = np.zeros(targets + 2, np.int32)
    np.cumsum(num_neighbors, out=indptr[1:-1])
    count = int(indptr[-2])
    indptr[-1] = capacity
    indices = np.zeros(capacity, np.int32)
    stored = np.arange(width, dtype=np.int32)[None, :] < num_neighbors[:, None]
    indices[:count] = senders[stored]
    weighted = table.entry_weights is not None
    # SciPy's conversion is a counting sort, several times as fast as NumPy's sorts.
    values = np.arange(count, dtype=np.int32) if weighted else np.ones(count, bool)
    by_sender = sparse.csr_array((values, indices[:count], indptr[:-1]), shape=(targets, table.num_sources)).tocsc()
    padding = capacity - count
    own = int(by_sender.indptr[1])  # of slot 0, whose row ends with the padding, so that receivers ascend
    outgoing_indptr = np.array(by_sender.indptr, np.int32)
    outgoing_indptr[1:] += padding

    def with_padding(of_edges: np.ndarray, of_padding: np.ndarray) -> np.ndarray:
        return np.concatenate([of_edges[:own], of_padding, of_edges[own:]], dtype=np.int32)

    coo = entries = None
    if weighted:
        entries = np.zeros(capacity, np.int32)
        entries[:count] = np.flatnonzero(stored)
        coo = Coo(
            receivers=np.repeat(np.arange(targets + 1, dtype=np.int32), np.diff(indptr)),
            senders=np.repeat(np.arange(table.num_sources, dtype=np.int32), np.diff(outgoing_indptr)),
            incoming_position=with_padding(by_sender.data, np.arange(count, capacity)),
        )
    graph = SemanticGraph(
        incoming=Csr(indptr, indices),
        outgoing=Csr(outgoing_indptr, with_padding(by_sender.indices, np.full(padding, targets))),
        coo=coo,
        adjacency=None,
        num_sources=table.num_sources,
        num_targets=targets + 1,
        name=table.name,
    )
    return graph, entries
