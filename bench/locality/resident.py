"""The control of every time: the same edges in the same order, gathering a few rows that stay in the first cache."""

import dataclasses

import numpy as np

from jhgnn.graph.semantic_graph import Csr, SemanticGraph


def resident_rows(row_bytes: int, cache_bytes: int) -> int:
    """As many as half of a cache holds, at least one."""
    return max(1, cache_bytes // 2 // row_bytes)


def resident(csr: Csr, rows: int, tile_columns: int = 0) -> Csr:
    """Each edge gathers one of the first `rows` rows of the table, or of its tile of it if there are tiles.

    What a kernel decides by degrees and by the size of its table, it decides as before.
    """
    indices = np.asarray(csr.indices)
    begin = indices // tile_columns * tile_columns if tile_columns else 0
    mapped = begin + (indices - begin) % rows
    if tile_columns:  # tiles are found by bisection: a row's edges stay in order
        receivers = np.repeat(np.arange(len(csr.indptr) - 1), np.diff(csr.indptr))
        mapped = mapped[np.lexsort((mapped, receivers))]
    return Csr(csr.indptr, mapped.astype(np.int32))


def resident_graph(graph: SemanticGraph, rows: int, tiles: tuple[int, int]) -> SemanticGraph:
    """Both directions so, each by itself: for times, as no gradient of it means anything.

    Args:
        tiles: columns of a tile in the forward and in the backward pass, 0 without.
    """
    incoming, outgoing = resident(graph.incoming, rows, tiles[0]), resident(graph.outgoing, rows, tiles[1])
    return dataclasses.replace(graph, incoming=incoming, outgoing=outgoing, coo=None, adjacency=None, buckets=None)
