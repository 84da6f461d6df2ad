"""Sparse, lazy updates of embedding tables: a batch's gradients, moments and updates have the size of the batch.

Any Optax optimizer updates the touched rows as if they were the whole table: their moments are gathered, updated and
written back, while an untouched row keeps its value and its moments (weight decay included). This is what
`torch.optim.SparseAdam` does for Adam.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

PATH = ("embeddings", "tables")
"""Where the tables stand in the parameters, and in every part of an optimizer's state that mirrors them."""


class TouchedRows(NamedTuple):
    """The rows of one table that a batch reads, each vertex once: `ids` int32 `[n]`, -1 where there is none."""

    ids: jax.Array
    gradients: jax.Array  # [n, width]


def tables_of(params: Any) -> Mapping[str, jax.Array]:
    """The embedding tables among a model's parameters, by node type."""
    return params.get("embeddings", {}).get("tables", {})


def with_tables(params: Any, tables: Mapping[str, jax.Array]) -> Any:
    """The parameters with other arrays in the place of the tables."""
    if PATH[1] not in params.get(PATH[0], {}):
        return params
    return params | {"embeddings": params["embeddings"] | {"tables": dict(tables)}}


def take(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a table, `[n, width]`; row 0 where the id is -1."""
    return table.at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")


def gather(tree: Any, ids: Mapping[str, jax.Array]) -> Any:
    """Parameters or optimizer state with the touched rows in place of every array that mirrors a table."""

    def rows(path: Any, leaf: jax.Array) -> jax.Array:
        node_type = _table_at(path)
        return leaf if node_type is None else take(leaf, ids[node_type])

    return jax.tree_util.tree_map_with_path(rows, tree)


def scatter(tree: Any, updated: Any, ids: Mapping[str, jax.Array]) -> Any:
    """The opposite of `gather`: the tree with the updated rows written back, in place where the tree is donated."""

    def write(path: Any, leaf: jax.Array, new: jax.Array) -> jax.Array:
        node_type = _table_at(path)
        if node_type is None:
            return new
        where = jnp.where(ids[node_type] >= 0, ids[node_type], leaf.shape[0])
        return leaf.at[where].set(new, mode="drop")

    return jax.tree_util.tree_map_with_path(write, tree, updated)


def merge_devices(
    rows: Mapping[str, TouchedRows], num_nodes: Mapping[str, int], axis: str, after: jax.Array
) -> dict[str, TouchedRows]:
    """The rows that any device touched, `[devices * n]`, with their gradients summed, the same on every device.

    One collective for all tables. It carries `after`, a float32 scalar that another collective made, so that the two
    come in this order on every device: processes that meet in different orders fail.
    """
    # As integers, whose bits nothing ever normalises.
    parts = [jax.lax.bitcast_convert_type(after, jnp.int32).reshape(1)]
    for own in rows.values():
        parts += [own.ids, jax.lax.bitcast_convert_type(own.gradients, jnp.int32).reshape(-1)]
    borders = np.cumsum([len(part) for part in parts])[:-1]
    gathered = jax.lax.all_gather(jnp.concatenate(parts), axis)
    split = jnp.split(gathered, borders, axis=1)[1:]
    merged = {}
    for position, (name, own) in enumerate(rows.items()):
        ids, words = split[2 * position].reshape(-1), split[2 * position + 1]
        gradients = jax.lax.bitcast_convert_type(words, jnp.float32).reshape(-1, own.gradients.shape[1])
        merged[name] = sum_repeated(TouchedRows(ids, gradients), num_nodes[name])
    return merged


def sum_repeated(rows: TouchedRows, num_nodes: int) -> TouchedRows:
    """Each vertex once, at its first position, with the sum of its gradients; one int32 a vertex and no sort."""
    positions = jnp.arange(len(rows.ids), dtype=jnp.int32)
    known = jnp.where(rows.ids >= 0, rows.ids, num_nodes)
    first = jnp.full(num_nodes + 1, len(rows.ids), jnp.int32).at[known].min(positions)
    stands_for = first.at[known].get(mode="promise_in_bounds")
    summed = jnp.zeros_like(rows.gradients).at[stands_for].add(rows.gradients)
    kept = (stands_for == positions) & (rows.ids >= 0)
    return TouchedRows(jnp.where(kept, rows.ids, -1), jnp.where(kept[:, None], summed, 0.0))


def _table_at(path: Any) -> str | None:
    """The node type where a path ends in `embeddings`, `tables`, node type."""
    keys = tuple(getattr(part, "key", None) for part in path[-3:])
    return keys[2] if keys[:2] == PATH and isinstance(keys[2], str) else None
