"""distinct_rows: some rows of a table, whose gradient is a gather instead of a scatter."""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


@jax.custom_vjp
def distinct_rows(table: Array, ids: Array, row_of: Array) -> Array:
    """`table[ids]`, `[num_ids, ...]` of `[num_rows, ...]`, where no id is there twice.

    Args:
        table: of any float dtype.
        ids: int32 `[num_ids]`, distinct and in range.
        row_of: int32 `[num_rows]`, where each row of the table stands among `ids`, or -1: its gradient is zero.
    """
    return table.at[ids].get(mode="promise_in_bounds", unique_indices=True)


def _forward(table: Array, ids: Array, row_of: Array) -> tuple[Array, tuple[Array, Array]]:
    return distinct_rows(table, ids, row_of), (ids, row_of)


def _backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, np.ndarray, np.ndarray]:
    ids, row_of = residuals
    if ids.shape[0] == 0:
        d_table = jnp.zeros((row_of.shape[0], *cotangent.shape[1:]), cotangent.dtype)
    else:
        rows = cotangent.at[jnp.maximum(row_of, 0)].get(mode="promise_in_bounds")
        d_table = jnp.where((row_of >= 0)[:, *(None,) * (rows.ndim - 1)], rows, 0)
    return d_table, np.zeros(ids.shape, jax.dtypes.float0), np.zeros(row_of.shape, jax.dtypes.float0)


distinct_rows.defvjp(_forward, _backward)
