"""The two directions of a graph or a sampled table as the kernels of a GPU take them."""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.native.cuda.rows import Entries
from jhgnn.ops.bucketed_edges import Edges
from jhgnn.ops.segment import in_degrees
from jhgnn.ops.table_entries import turned


def forwards_of(graph: Edges) -> Entries:
    """Receivers, whose entries are senders."""
    if isinstance(graph, SemanticGraph):
        return Entries.of(graph.incoming)
    return padded(graph.senders, graph.num_neighbors)


def backwards_of(graph: Edges) -> Entries:
    """Senders, whose entries are receivers; a table's are sorted in the program."""
    if isinstance(graph, SemanticGraph):
        return Entries.of(graph.outgoing)
    found = turned(graph.senders, graph.mask, graph.num_sources)
    return Entries(found.indptr, jnp.zeros(0, jnp.int32), found.rows)


def padded(columns: jax.Array, counts: jax.Array) -> Entries:
    """Rows padded to one length, int32 `[num_rows, width]`, of which the first `counts` are entries."""
    num_rows, width = columns.shape
    indptr = width * jnp.arange(num_rows + 1, dtype=jnp.int32)
    return Entries(indptr, indptr[:-1] + counts, columns.reshape(-1))


def degrees_of(graph: Edges) -> jax.Array:
    """Edges into each target, int32 `[num_targets]`."""
    return in_degrees(graph) if isinstance(graph, SemanticGraph) else graph.num_neighbors
