"""Dropout of input features, dense or sparse, by one definition of which elements drop."""

import dataclasses

import jax
import jax.numpy as jnp

from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn.dropout import drop_rows
from jhgnn.nn.feature_projection import Rows
from jhgnn.random.counter_hash import edge_bits, keep_threshold


def drop_features(x: Rows, seed: jax.Array, rate: float, ids: jax.Array | None = None) -> Rows:
    """Zeroes elements with probability `rate` and scales the kept ones by 1 / (1 - rate).

    A sparse matrix keeps its structure and drops the values that the dense one would drop. Rows of a part of the graph
    come with their global `ids`, `[rows]`; `SparseFeatures` know theirs.
    """
    if not isinstance(x, SparseFeatures | SparseRows):
        return drop_rows(x, seed, rate, ids)
    if rate == 0.0:
        return x

    def dropped(values: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
        bits = edge_bits(seed, rows.astype(jnp.uint32), columns.astype(jnp.uint32), jnp.uint32(0))
        return jnp.where(bits >= jnp.uint32(keep_threshold(rate)), values / (1.0 - rate), 0.0)

    if isinstance(x, SparseRows):
        rows = (jnp.arange(x.num_rows) if ids is None else ids)[:, None]
        return dataclasses.replace(x, values=dropped(x.values, rows, x.columns))
    rows = x.rows if x.row_ids is None else x.row_ids
    rows_by_column = x.by_column.indices if x.row_ids_by_column is None else x.row_ids_by_column
    return dataclasses.replace(
        x,
        values=dropped(x.values, rows, x.by_row.indices),
        values_by_column=dropped(x.values_by_column, rows_by_column, x.columns),
    )
