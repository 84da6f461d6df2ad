"""Rows of an embedding table by id, read and written by the kernels of a GPU."""

import jax
import jax.numpy as jnp


def gather_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """`table[ids]`, `[num_ids, width]` of `[num_rows, width]`; zeros where an id is below 0.

    Args:
        table: of a dtype with two bytes an element at least.
        ids: int32 `[num_ids]`, below the number of rows.
    """
    shape = jax.ShapeDtypeStruct((ids.shape[0], table.shape[1]), table.dtype)
    return jnp.asarray(jax.ffi.ffi_call("jhgnn_cuda_gather_rows", shape)(table, ids))


def write_rows(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """The table with `rows`, `[num_ids, width]`, at distinct `ids`; in its own memory where it is donated.

    Rows whose id is below 0 are left out.
    """
    shape = jax.ShapeDtypeStruct(table.shape, table.dtype)
    call = jax.ffi.ffi_call("jhgnn_cuda_write_rows", shape, input_output_aliases={0: 0})
    return jnp.asarray(call(table, ids, rows))
