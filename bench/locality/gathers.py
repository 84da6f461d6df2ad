"""The rows that neighbor aggregation gathers, in the order in which one thread reads them."""

import numpy as np

from jhgnn.graph.semantic_graph import Csr, SemanticGraph

TILE_ROWS = 64
"""Receivers that walk a tile of columns together (`kTileRows` of `jhgnn/native/kernels.h`)."""


def direction(graph: SemanticGraph, backward: bool) -> tuple[Csr, int]:
    """The compressed rows of a pass, and how many rows it gathers from: senders', or receivers' by the transpose."""
    return (graph.outgoing, graph.num_targets) if backward else (graph.incoming, graph.num_sources)


def gathers(csr: Csr, tile_columns: int = 0) -> np.ndarray:
    """`[num_edges]`, the row that each edge reads: rows in order, or tile by tile if there are tiles."""
    return np.asarray(csr.indices)[walk(csr, tile_columns)] if tile_columns else np.asarray(csr.indices)


def walk(csr: Csr, tile_columns: int) -> np.ndarray:
    """`[num_edges]`, edges in the order of the native kernels (`walk_rows` of `jhgnn/native/csr.h`)."""
    rows = np.repeat(np.arange(len(csr.indptr) - 1, dtype=np.int64), np.diff(csr.indptr))
    if not tile_columns:
        return np.arange(len(rows))
    tiles = np.asarray(csr.indices, np.int64) // tile_columns
    return np.lexsort((rows, tiles, rows // TILE_ROWS))  # stable: a row's edges of a tile stay in order
