"""basis_rows: rows of the matrices that R-GCN's bases make, as one-hot features read them, without the matrices.

With one-hot inputs a layer reads a few rows of each relation's matrix, and `[relations, nodes, width]` of them would be
made. A kernel of our own on CPU; elsewhere, and by other implementations of `sparse_matmul` than `native`, the matrices
are made (`basis_matrices`) and multiplied as any others.
"""

import functools

import jax
import jax.numpy as jnp

from jhgnn import native
from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.ops.implementation import KERNEL_DTYPES
from jhgnn.runtime.platform import target_platform


def has_kernel() -> bool:
    """Whether programs are compiled for a platform with the kernel, and the package was installed with it."""
    return target_platform() == "cpu" and native.available()


def basis_rows(
    slots: OneHotSlots, values: jax.Array, c_rb: jax.Array, v_bio: jax.Array, *, dtype: jax.typing.DTypeLike
) -> jax.Array:
    """Of each slot p of feature i and matrix r `values[i's entry] * sum over b of c_rb[r, b] * v_bio[b, i]`.

    Args:
        slots: constant.
        values: float `[entries of the table]` or longer, its values by row, as dropout left them; constant.
        c_rb: float32 `[matrices, bases]`.
        v_bio: float32 `[bases, features, width]`.
        dtype: of the result, float32 or bfloat16; it is summed in float32 and rounded once.

    Returns:
        `[num_slots, width]`; zeros of slots that have no feature. Features that no slot has get a gradient of zero. At
        run time malformed slots are a ValueError.

    Raises:
        ValueError: shapes that do not fit, or a dtype that the kernel does not take.
        RuntimeError: the package was installed without the kernel.
    """
    bases = c_rb.shape[1]
    if v_bio.shape[:2] != (bases, slots.num_features):
        raise ValueError(f"basis_rows of {slots.num_features} features and {bases} bases got matrices {v_bio.shape}")
    if values.shape[0] < slots.num_entries:
        raise ValueError(f"basis_rows of a table of {slots.num_entries} entries got {values.shape[0]} values")
    if c_rb.dtype != jnp.float32 or v_bio.dtype != jnp.float32 or jnp.dtype(dtype).name not in KERNEL_DTYPES:
        raise ValueError(
            f"basis_rows combines float32 to float32 or bfloat16 and got {c_rb.dtype}, {v_bio.dtype} and"
            f" {jnp.dtype(dtype)}; cast, or use another implementation of sparse_matmul than 'native'"
        )
    native.library()
    if slots.entries.shape[0] == 0 or c_rb.size == 0 or v_bio.size == 0:
        return jnp.zeros((slots.num_slots, v_bio.shape[2]), dtype)
    held = values.at[slots.entries].get(mode="promise_in_bounds").astype(jnp.float32)
    return _combined(jnp.dtype(dtype), slots, held, c_rb, v_bio)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _combined(dtype: jnp.dtype, slots: OneHotSlots, held: jax.Array, c_rb: jax.Array, v_bio: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct((slots.num_slots, v_bio.shape[2]), dtype)
    call = jax.ffi.ffi_call("jhgnn_basis_rows", shape)
    return jnp.asarray(call(slots.by_feature.indptr, slots.by_feature.indices, slots.matrices, held, c_rb, v_bio))


def _forward(
    dtype: jnp.dtype, slots: OneHotSlots, held: jax.Array, c_rb: jax.Array, v_bio: jax.Array
) -> tuple[jax.Array, tuple[OneHotSlots, jax.Array, jax.Array, jax.Array]]:
    return _combined(dtype, slots, held, c_rb, v_bio), (slots, held, c_rb, v_bio)


def _backward(
    dtype: jnp.dtype, residuals: tuple[OneHotSlots, jax.Array, jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[None, None, jax.Array, jax.Array]:
    slots, held, c_rb, v_bio = residuals
    shapes = [jax.ShapeDtypeStruct(each.shape, jnp.float32) for each in (c_rb, v_bio)]
    call = jax.ffi.ffi_call("jhgnn_basis_rows_backward", shapes)
    csr = slots.by_feature
    d_c, d_v = call(csr.indptr, csr.indices, slots.matrices, held, c_rb, v_bio, cotangent)
    return None, None, d_c, d_v


_combined.defvjp(_forward, _backward)
