"""dense_matmul: rows times a weight; on CPU a kernel of our own for the gradient of a small weight.

XLA hands that product, a few thousand rows deep and 64 by 64 wide, to a routine that reaches a fifth of the processor's
rate, where the other two products of a projection reach half of it to two thirds (docs/experiments.md).
"""

import jax
import jax.numpy as jnp

from jhgnn import native
from jhgnn.runtime.platform import target_platform

LANES = 16
"""Floats of the kernel's widest vector."""

MIN_ROWS = 256
MAX_WEIGHT_SIZE = {"avx512": 32_768, "avx2": 8_192}
"""Elements of the largest weight that has the kernel, by instruction set; beyond it, and on others, XLA is as good."""


def dense_matmul(x: jax.Array, weight: jax.Array) -> jax.Array:
    """`x @ weight`, `[rows, in_width]` times `[in_width, out_width]` of one dtype; summed in float32 at least."""
    if _has_kernel(x, weight):
        return _with_kernel(x, weight)
    return _matmul(x, weight)


def _has_kernel(x: jax.Array, weight: jax.Array) -> bool:
    return (
        target_platform() == "cpu"
        and x.dtype in (jnp.float32, jnp.bfloat16)
        and x.shape[0] >= MIN_ROWS
        and weight.size > 0
        and native.available()
        and weight.size <= MAX_WEIGHT_SIZE.get(native.instruction_set(), 0)
    )


def _matmul(x: jax.Array, weight: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.matmul(x, weight, preferred_element_type=accumulator).astype(x.dtype)


@jax.custom_vjp
def _with_kernel(x: jax.Array, weight: jax.Array) -> jax.Array:
    return _matmul(x, weight)


def _forward(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _matmul(x, weight), (x, weight)


def _backward(residuals: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = residuals
    # The kernel's vectors lie along the second factor's columns.
    d_weight = _outer_sum(cotangent, x).T if weight.shape[1] < LANES else _outer_sum(x, cotangent)
    return _matmul(cotangent, weight.T), d_weight.astype(weight.dtype)


def _outer_sum(x: jax.Array, d: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct((x.shape[1], d.shape[1]), jnp.float32)
    return jnp.asarray(jax.ffi.ffi_call("jhgnn_outer_sum", shape)(x, d))


_with_kernel.defvjp(_forward, _backward)
