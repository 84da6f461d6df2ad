"""Sampled tables and rows of features as compressed rows of a kernel, in both directions, made in the program.

Backwards the entries are sorted by column; what a table pads stands after all of them, and belongs to no row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Turned(NamedTuple):
    """The entries of padded rows in the order of their columns.

    Attributes:
        indptr: int32 `[num_columns + 1]`.
        rows: int32 `[num_entries]`, the row of each; those from `indptr[-1]` on are padding.
        positions: int32 `[num_entries]`, where each stands in the table, row by row.
    """

    indptr: jax.Array
    rows: jax.Array
    positions: jax.Array


def turned(columns: jax.Array, is_entry: jax.Array, num_columns: int) -> Turned:
    """Sorts entries by column; those of a column stay in their order.

    Args:
        columns: int32 `[num_rows, width]`, in range.
        is_entry: bool, likewise: what is not padding.
        num_columns: static.
    """
    keys = jnp.where(is_entry, columns, num_columns).reshape(-1)
    keys, positions = jax.lax.sort((keys, jnp.arange(columns.size, dtype=jnp.int32)), num_keys=1)
    indptr = jnp.searchsorted(keys, jnp.arange(num_columns + 1, dtype=jnp.int32), method="scan_unrolled")
    return Turned(indptr.astype(jnp.int32), positions // columns.shape[1], positions)
