"""Any platform: XLA's gather, and its scatter of whole rows that never meet."""

import jax
import jax.numpy as jnp


def read_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """See `jhgnn.ops.table_rows`; row 0 where there is no id."""
    return table.at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")


def write_rows(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """See `jhgnn.ops.table_rows`."""
    size = table.shape[0]
    # Padding has places of its own beyond the table, so that no two writes meet, and none is dropped by accident.
    where = jnp.where(ids >= 0, ids, size + jnp.arange(len(ids), dtype=jnp.int32))
    return table.at[where].set(rows, mode="drop", unique_indices=True)
