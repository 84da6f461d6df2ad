"""logit_columns: what maps features to attention logits, from the matrices that project them and attention vectors.

The logit of a head is z . a, and z = x W, so it is x (W a): a column of the projection's matmul (GAT eq. 3, with the
receiver's and the sender's half of the attention vector apart).
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn import native
from jhgnn.runtime.platform import target_platform


def logit_columns(stack: jax.Array, places: Sequence[int], vectors: jax.Array) -> jax.Array:
    """The columns of several attention vectors, `[in_width, vectors * heads]`, a vector's heads side by side.

    A kernel of our own on CPU in float32: XLA puts heads in front of the matrices first and joins the results, which
    took 15 % of R-GAT's step on IMDB (docs/experiments.md).

    Args:
        stack: `[matrices, in_width, heads * width]`.
        places: of each vector's matrix in the stack; several may share one.
        vectors: `[vectors, heads, width]`, of the stack's dtype.

    Raises:
        ValueError: shapes that do not fit, or a place outside the stack.
    """
    count, heads, width = vectors.shape
    if len(places) != count or stack.shape[2] != heads * width:
        raise ValueError(
            f"logit_columns of a stack {stack.shape} got {len(places)} places and vectors {vectors.shape};"
            " need a place a vector, and a stack of heads * width columns"
        )
    if not all(0 <= place < stack.shape[0] for place in places):
        raise ValueError(f"logit_columns of a stack of {stack.shape[0]} matrices got places {list(places)}")
    if _has_kernel(stack, vectors):
        return _native(tuple(places), stack, vectors)
    columns = [
        jnp.einsum("ihd,hd->ih", stack[place].reshape(-1, heads, width), vector)
        for place, vector in zip(places, vectors, strict=True)
    ]
    return jnp.concatenate(columns, axis=1) if columns else jnp.zeros((stack.shape[1], 0), stack.dtype)


def _has_kernel(stack: jax.Array, vectors: jax.Array) -> bool:
    return (
        target_platform() == "cpu"
        and stack.dtype == vectors.dtype == jnp.float32
        and stack.size > 0
        and vectors.size > 0
        and native.available()
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _native(places: tuple[int, ...], stack: jax.Array, vectors: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct((stack.shape[1], vectors.shape[0] * vectors.shape[1]), jnp.float32)
    return jnp.asarray(
        jax.ffi.ffi_call("jhgnn_logit_columns", shape)(stack, vectors, places=np.array(places, np.int64))
    )


def _forward(
    places: tuple[int, ...], stack: jax.Array, vectors: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _native(places, stack, vectors), (stack, vectors)


def _backward(
    places: tuple[int, ...], residuals: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    shapes = [jax.ShapeDtypeStruct(each.shape, jnp.float32) for each in residuals]
    call = jax.ffi.ffi_call("jhgnn_logit_columns_backward", shapes)
    d_stack, d_vectors = call(*residuals, cotangent, places=np.array(places, np.int64))
    return d_stack, d_vectors


_native.defvjp(_forward, _backward)
