"""column_parts: the columns of a matrix as matrices of their own, such as a projection's by relation."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jhgnn import native
from jhgnn.runtime.platform import target_platform

MANY = 8
"""Parts from which on one kernel makes all of them on a CPU. XLA compiles a kernel for each, 10 to 20 ms of it."""


def column_parts(x: jax.Array, widths: Sequence[int]) -> list[jax.Array]:
    """The parts of a matrix, `[rows, width]` each, from `[rows, columns]`.

    Their gradient is one concatenation. (That of slices is a sum of padded copies: over the 90 relations of AIFB, a
    third of the step time.)

    Args:
        x: of any dtype.
        widths: of the parts from the left, which add up to the columns.

    Raises:
        ValueError: they do not.
    """
    if sum(widths) != x.shape[1]:
        raise ValueError(f"column_parts of {x.shape[1]} columns got widths that add up to {sum(widths)}")
    if len(widths) >= MANY and x.size > 0 and target_platform() == "cpu" and native.available():
        return _native(tuple(widths), x)
    return list(jax.lax.split(x, list(widths), axis=1))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _native(widths: tuple[int, ...], x: jax.Array) -> list[jax.Array]:
    parts = [jax.ShapeDtypeStruct((x.shape[0], width), x.dtype) for width in widths]
    return list(jax.ffi.ffi_call("jhgnn_column_parts", parts)(x))


def _forward(widths: tuple[int, ...], x: jax.Array) -> tuple[list[jax.Array], None]:
    return _native(widths, x), None


def _backward(widths: tuple[int, ...], residuals: None, cotangents: list[jax.Array]) -> tuple[jax.Array]:
    return (jnp.concatenate(cotangents, axis=1),)


_native.defvjp(_forward, _backward)
