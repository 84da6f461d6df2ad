"""CUDA: a warp copies a row as it lies in memory."""

import jax

from jhgnn.native.cuda import table_rows


def read_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """See `jhgnn.ops.table_rows`; zeros where there is no id."""
    return table_rows.gather_rows(table, ids) if ids.shape[0] and table.shape[1] else _nothing(table, ids)


def write_rows(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """See `jhgnn.ops.table_rows`."""
    return table_rows.write_rows(table, ids, rows) if ids.shape[0] and table.shape[1] else table


def _nothing(table: jax.Array, ids: jax.Array) -> jax.Array:
    return table[:0].reshape(ids.shape[0], table.shape[1])
