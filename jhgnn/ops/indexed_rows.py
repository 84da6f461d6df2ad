"""indexed_rows and its opposite, summed_rows: rows of a table by id, in no direction a scatter of floats on a GPU.

XLA scatters floats there one after the other wherever two meet (docs/gpu.md). On CPUs indexing stays what it is.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.ops.bucketed_edges import turned_rows
from jhgnn.ops.bucketed_rows import sum_rows
from jhgnn.ops.distinct_rows import distinct_rows
from jhgnn.runtime.platform import GPUS, target_platform


def indexed_rows(table: jax.Array, ids: jax.Array, *, distinct: bool = False) -> jax.Array:
    """`table[ids]`, `[num_ids, ...]` of `[num_rows, ...]`.

    Args:
        table: of any float dtype; gradients are summed in float32 at least.
        ids: int32 `[num_ids]`, in range.
        distinct: promises that no id is there twice.
    """
    if target_platform() not in GPUS or ids.shape[0] == 0:
        return table[ids]
    if distinct:
        numbers = jnp.arange(ids.shape[0], dtype=jnp.int32)
        row_of = jnp.full(table.shape[0], -1, jnp.int32).at[ids].set(numbers, unique_indices=True)
        return distinct_rows(table, ids, row_of)
    return _indexed(table.shape[0], table, ids)


def rows_at(table: jax.Array, places: Sequence[int]) -> jax.Array:
    """The rows at these static places, none of them twice. A run of them is a slice."""
    first = places[0] if places else 0
    if list(places) == list(range(first, first + len(places))):
        return table[slice(first, first + len(places))]
    return indexed_rows(table, jnp.array(places, jnp.int32), distinct=True)


def summed_rows(values: jax.Array, ids: jax.Array, num_rows: int) -> jax.Array:
    """The sum of the rows of each id, `[num_rows, ...]` of `[num_ids, ...]`; zeros for an id that is not there.

    Has no gradient on a GPU. Arguments as `indexed_rows` has them.
    """
    if target_platform() not in GPUS or ids.shape[0] == 0:
        return jnp.zeros((num_rows, *values.shape[1:]), values.dtype).at[ids].add(values)
    wide = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    rows, _ = turned_rows(ids[:, None], jnp.ones((ids.shape[0], 1), bool), num_rows)
    sums: jax.Array = sum_rows(rows, lambda own: own.of_columns(wide))
    return sums.astype(values.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _indexed(num_rows: int, table: jax.Array, ids: jax.Array) -> jax.Array:
    return table.at[ids].get(mode="promise_in_bounds")


def _forward(num_rows: int, table: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _indexed(num_rows, table, ids), ids


def _backward(num_rows: int, ids: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, np.ndarray]:
    return summed_rows(cotangent, ids, num_rows), np.zeros(ids.shape, jax.dtypes.float0)


_indexed.defvjp(_forward, _backward)
