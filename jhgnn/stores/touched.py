"""The rows of tables that a batch reads, with their gradients, summed where several devices or parts read a node."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jhgnn.ops.indexed_rows import summed_rows
from jhgnn.ops.words import from_words, to_words


class TouchedRows(NamedTuple):
    """The rows of one table that a batch reads, each vertex once: `ids` int32 `[n]`, -1 where there is none."""

    ids: jax.Array
    gradients: jax.Array  # [n, width]


def take(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a table, `[*ids.shape, ...]`; row 0 where the id is -1."""
    return table.at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")


def merge_devices(
    rows: Mapping[str, TouchedRows], num_nodes: Mapping[str, int], axis: str | tuple[str, ...], after: jax.Array
) -> dict[str, TouchedRows]:
    """The rows that any device touched, `[devices * n]`, with their gradients summed, the same on every device.

    There is one collective for all tables. It takes `after`, a float32 scalar that another collective made, so that the
    two come in this order on every device. Processes whose collectives come in different orders fail.
    """
    leaves = [after.reshape(1, 1)]
    for own in rows.values():
        leaves += [own.ids[None], own.gradients[None]]
    gathered = jax.lax.all_gather(to_words(leaves), axis, tiled=True)
    split = from_words(gathered, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])[1:]
    merged = {}
    for position, (name, own) in enumerate(rows.items()):
        ids, gradients = split[2 * position].reshape(-1), split[2 * position + 1].reshape(-1, own.gradients.shape[1])
        merged[name] = sum_repeated(TouchedRows(ids, gradients), num_nodes[name])
    return merged


def sum_repeated(rows: TouchedRows, num_nodes: int) -> TouchedRows:
    """Each node once, at its first position, with the sum of its gradients.

    It needs one int32 for each of the `num_nodes` and sorts nothing.
    """
    positions = jnp.arange(len(rows.ids), dtype=jnp.int32)
    known = jnp.where(rows.ids >= 0, rows.ids, num_nodes)
    first = jnp.full(num_nodes + 1, len(rows.ids), jnp.int32).at[known].min(positions)
    stands_for = first.at[known].get(mode="promise_in_bounds")
    summed = summed_rows(rows.gradients, stands_for, len(rows.ids))
    kept = (stands_for == positions) & (rows.ids >= 0)
    return TouchedRows(jnp.where(kept, rows.ids, -1), jnp.where(kept[:, None], summed, 0.0))
