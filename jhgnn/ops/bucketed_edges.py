"""The two directions of a graph, a sampled table or a feature matrix, in degree buckets.

Those of a whole graph or matrix are views of it, made on the host. A sampled table is its own bucket forwards.
Backwards its entries are sorted by sender in the program, and the buckets, whose shapes depend on the table alone, are
made there: whatever the sample, each row that is longer than a loop has its place among the long ones, of which there
are no more than so many entries allow.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from jhgnn.graph.degree_buckets import ROUND, SLOTS, Bucket, DegreeBuckets, in_parts
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.bucketed_rows import Rows
from jhgnn.ops.table_entries import turned

Edges: TypeAlias = SemanticGraph | NeighborTable

LENGTHS = ((8, 16), (8, SLOTS), (16, ROUND), (ROUND, ROUND))
"""By level of joining: entries of the rows that are summed whole, and of the pieces of longer ones.

Most sampled vertices send to a few targets, so the first loop is short: it runs for every row.
"""


def forwards_of(graph: Edges) -> Rows:
    """Receivers, whose entries are senders.

    Raises:
        ValueError: a whole graph was placed without its `buckets` view.
    """
    if isinstance(graph, SemanticGraph):
        if graph.buckets is None:
            raise ValueError(_without_view(graph.name))
        return Rows(graph.buckets.forwards, graph.incoming.indices)
    return padded_rows(graph.senders, graph.num_neighbors)


def backwards_of(graph: Edges) -> Rows:
    """Senders, whose entries are receivers; raises as `forwards_of`."""
    if isinstance(graph, SemanticGraph):
        if graph.buckets is None:
            raise ValueError(_without_view(graph.name))
        return Rows(graph.buckets.backwards, graph.outgoing.indices)
    return turned_rows(graph.senders, graph.mask, graph.num_sources)[0]


def has_edges(graph: Edges) -> bool:
    """Whether there can be any, by its static sizes."""
    return graph.num_edges > 0 if isinstance(graph, SemanticGraph) else graph.num_targets * graph.num_sources > 0


def padded_rows(columns: jax.Array, counts: jax.Array) -> Rows:
    """Rows padded to one length, `columns` int32 `[num_rows, width]`, of which the first `counts` are entries."""
    num_rows, width = columns.shape
    starts = width * jnp.arange(num_rows, dtype=jnp.int32)
    return Rows(_even(starts, counts, width), columns.reshape(-1))


def turned_rows(columns: jax.Array, is_entry: jax.Array, num_columns: int) -> tuple[Rows, jax.Array]:
    """The columns of padded rows as rows, and the position of each entry in the table; arguments as of `turned`."""
    found = turned(columns, is_entry, num_columns)
    grouped = _any(found.indptr[:-1], jnp.diff(found.indptr), columns.size, 0)
    return Rows(grouped, found.rows), found.positions


def _even(starts: jax.Array, counts: jax.Array, width: int) -> DegreeBuckets:
    """Rows of at most `width` entries in their order; cut, all alike, where that is too long for a bucket."""
    num_rows = starts.shape[0]
    if width <= ROUND:
        return DegreeBuckets((_all_rows(starts, counts, width),), None, None, None, num_rows)
    length = ROUND
    number = -(-width // length)
    begins = length * jnp.arange(number, dtype=jnp.int32)
    pieces = _bucket(
        (starts[:, None] + begins[None]).reshape(-1),
        jnp.clip(counts[:, None] - begins[None], 0, length).reshape(-1),
        jnp.repeat(jnp.arange(num_rows, dtype=jnp.int32), number, total_repeat_length=num_rows * number),
        length,
    )
    joined = _even(number * jnp.arange(num_rows, dtype=jnp.int32), -(-counts // length), number)
    return DegreeBuckets((), pieces, joined, jnp.arange(num_rows, dtype=jnp.int32), num_rows)


def _any(starts: jax.Array, counts: jax.Array, num_entries: int, level: int) -> DegreeBuckets:
    """Rows of any length, known only when the program runs; of at most `num_entries` together."""
    num_rows = starts.shape[0]
    short, length = LENGTHS[min(level, len(LENGTHS) - 1)]
    if num_entries <= short:
        return DegreeBuckets((_all_rows(starts, counts, num_entries),), None, None, None, num_rows)
    is_long = counts > short
    most_long = min(num_rows, num_entries // (short + 1))
    rank = jnp.cumsum(is_long, dtype=jnp.int32)
    long = jnp.searchsorted(rank, jnp.arange(1, most_long + 1, dtype=jnp.int32), method="scan_unrolled")
    long = jnp.minimum(long, num_rows - 1).astype(jnp.int32)
    there = jnp.arange(most_long, dtype=jnp.int32) < rank[-1]
    long_starts, long_counts = starts[long], jnp.where(there, counts[long], 0)
    number = -(-long_counts // length)
    ends = jnp.cumsum(number, dtype=jnp.int32)
    most_pieces = num_entries // length + most_long
    at = jnp.arange(most_pieces, dtype=jnp.int32)
    owner = jnp.searchsorted(ends, at, side="right", method="scan_unrolled")
    owner = jnp.minimum(owner, most_long - 1).astype(jnp.int32)
    begins = length * (at - (ends - number)[owner])
    piece_counts = jnp.where(at < ends[-1], jnp.clip(long_counts[owner] - begins, 0, length), 0)
    whole = _all_rows(starts, jnp.where(is_long, 0, counts), short)
    places = jnp.where(is_long, whole.num_rows + rank - 1, jnp.arange(num_rows, dtype=jnp.int32))
    pieces = _bucket(long_starts[owner] + begins, piece_counts, long[owner], length)
    joined = _any(ends - number, number, most_pieces, level + 1)
    return DegreeBuckets((whole,), pieces, joined, places, num_rows)


def _all_rows(starts: jax.Array, counts: jax.Array, width: int) -> Bucket:
    bucket = _bucket(starts, counts, jnp.arange(starts.shape[0], dtype=jnp.int32), width)
    return bucket if bucket.starts.shape[0] > 1 else Bucket(bucket.starts, bucket.counts, None, width)


def _bucket(starts: jax.Array, counts: jax.Array, rows: jax.Array, width: int) -> Bucket:
    return Bucket(in_parts(starts, width), in_parts(counts, width), in_parts(rows, width), width)


def _without_view(name: str) -> str:
    return f"semantic graph {name!r} was placed without its 'buckets' view, which 'bucketed' reads"
