"""Sums and maxima along the rows of a compressed matrix in degree buckets, in plain JAX, without a scatter.

Made for XLA on GPUs: a bucket is one loop of constant length over its rows' entries, in which XLA fuses the gathers and
the arithmetic of what is summed, so that no array of the size entries x width is written (docs/gpu.md).
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.degree_buckets import ROUND, SLOTS, Bucket, DegreeBuckets

How = Literal["sum", "max"]
_IDENTITY = {"sum": 0.0, "max": -np.inf}


class Rows(NamedTuple):
    """The rows of one direction of a graph, table or matrix.

    Attributes:
        grouped: by their number of entries.
        indices: int32 `[num_entries]`, columns in the compressed order.
    """

    grouped: DegreeBuckets
    indices: jax.Array


class Entries(NamedTuple):
    """Some entries of some rows, beside one another.

    Attributes:
        columns: int32 `[slots, rows]`, the column of each entry.
        positions: int32 `[slots, rows]`, where each stands in the compressed order.
        rows: int32 `[rows]`, or None for all rows in their order.
    """

    columns: jax.Array
    positions: jax.Array
    rows: jax.Array | None

    def of_columns(self, values: jax.Array) -> jax.Array:
        """`[num_columns, ...]` to `[slots, rows, ...]`."""
        return _gather(values, self.columns)

    def of_entries(self, values: jax.Array) -> jax.Array:
        """`[num_entries, ...]` to `[slots, rows, ...]`."""
        return _gather(values, self.positions)

    def of_rows(self, values: jax.Array) -> jax.Array:
        """`[num_rows, ...]` to `[1, rows, ...]`."""
        return (values if self.rows is None else _gather(values, self.rows))[None]

    @property
    def row_numbers(self) -> jax.Array:
        """int32 `[1, rows]`."""
        return (jnp.arange(self.columns.shape[1], dtype=jnp.int32) if self.rows is None else self.rows)[None]


Part = tuple[jax.Array, jax.Array, jax.Array | None]
Message = Callable[[Entries], Any]
"""What is summed: a pytree of `[slots, rows, ...]`; what it is where there is no entry does not matter."""


def sum_rows(rows: Rows, message: Message) -> Any:
    """Sums of the messages along each row, a pytree of `[num_rows, ...]`; zeros for rows without entries.

    Args:
        rows: the rows, of which one has an entry at least.
        message: of some entries of some rows; called while tracing, once a loop.
    """
    return _reduce("sum", rows.grouped, rows.indices, message)


def max_rows(rows: Rows, message: Message) -> Any:
    """Maxima, as `sum_rows`; -inf for rows without entries."""
    return _reduce("max", rows.grouped, rows.indices, message)


def _reduce(how: How, grouped: DegreeBuckets, indices: jax.Array | None, message: Message) -> Any:
    results = [_of_bucket(how, bucket, indices, message) for bucket in grouped.buckets]
    if grouped.pieces is not None:
        assert grouped.joined is not None
        pieces = _of_bucket(how, grouped.pieces, indices, message)
        results.append(_reduce(how, grouped.joined, None, lambda own: jax.tree.map(own.of_columns, pieces)))
    if grouped.places is None:
        return jax.tree.map(lambda leaf: leaf[: grouped.num_rows], results[0])
    return jax.tree.map(functools.partial(_placed, how, grouped.places), *results)


def _of_bucket(how: How, bucket: Bucket, indices: jax.Array | None, message: Message) -> Any:
    """Of a bucket's rows, `[parts * rows, ...]`; one part after the other, and within it one round after the other."""
    join = functools.partial(jax.tree.map, jnp.add if how == "sum" else jnp.maximum)

    def of_round(part: Part, first: int | jax.Array, stop: int) -> Any:
        """Of the entries from `first` on, which a loop or a few of them reach, up to `stop` of them."""
        starts, counts, rows = part
        result = None
        for begin in range(0, stop, SLOTS):
            slots = first + jnp.arange(begin, min(begin + SLOTS, stop), dtype=jnp.int32)[:, None]
            is_entry = slots < counts[None]
            positions = jnp.where(is_entry, starts[None] + slots, 0)
            columns = positions if indices is None else _gather(indices, positions)
            values = message(Entries(columns, positions, rows))
            own = jax.tree.map(functools.partial(_along_slots, how, is_entry), values)
            result = own if result is None else join(result, own)
        return result

    def of_part(part: Part) -> Any:
        if bucket.width <= ROUND:
            return of_round(part, 0, bucket.width)

        def further(result: Any, first: jax.Array) -> tuple[Any, None]:
            return join(result, of_round(part, first, ROUND)), None

        shapes = jax.eval_shape(lambda: of_round(part, 0, ROUND))
        none = jax.tree.map(lambda leaf: jnp.full(leaf.shape, _IDENTITY[how], leaf.dtype), shapes)
        return jax.lax.scan(further, none, jnp.arange(0, bucket.width, ROUND, dtype=jnp.int32))[0]

    if bucket.starts.shape[0] == 1:
        return of_part((bucket.starts[0], bucket.counts[0], None if bucket.rows is None else bucket.rows[0]))
    parts = jax.lax.map(of_part, (bucket.starts, bucket.counts, bucket.rows))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)


def _along_slots(how: How, is_entry: jax.Array, values: jax.Array) -> jax.Array:
    # Chosen, not multiplied: a product that is summed would be a dot to XLA, which writes out both of its factors.
    mask = is_entry.reshape(*is_entry.shape, *(1,) * (values.ndim - 2))
    kept = jnp.where(mask, values, jnp.asarray(_IDENTITY[how], values.dtype))
    return kept.sum(axis=0) if how == "sum" else kept.max(axis=0)


def _placed(how: How, places: jax.Array, *results: jax.Array) -> jax.Array:
    """Each row's result, from where it stands among these: read from each, so that they are never joined."""
    shape = (places.shape[0], *(1,) * (results[0].ndim - 1))
    out, offset = jnp.asarray(_IDENTITY[how], results[0].dtype), 0
    for own in results:
        here = places - offset
        inside = ((here >= 0) & (here < own.shape[0])).reshape(shape)
        out = jnp.where(inside, _gather(own, jnp.clip(here, 0, own.shape[0] - 1)), out)
        offset += own.shape[0]
    return out


def _gather(values: jax.Array, at: jax.Array) -> jax.Array:
    return values.at[at].get(mode="promise_in_bounds")
