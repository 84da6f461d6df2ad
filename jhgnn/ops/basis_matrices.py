"""basis_matrices: the matrices of relations as combinations of shared ones, in products of flat matrices both ways.

With one-hot inputs they are as large as the model. Left to itself XLA transposes them for its products, and the
optimizer then reads the gradient against its grain.
"""

import math

import jax


@jax.custom_vjp
def basis_matrices(c_rb: jax.Array, v_bio: jax.Array) -> jax.Array:
    """Each relation's combination of the bases, `[relations, in_width, out_width]`.

    Args:
        c_rb: `[relations, bases]`, of any float dtype.
        v_bio: `[bases, in_width, out_width]`, of the same.

    Source: Schlichtkrull et al., R-GCN, ESWC 2018, eq. 3.
    """
    return (c_rb @ _flat(v_bio)).reshape(c_rb.shape[0], *v_bio.shape[1:])


def _forward(c_rb: jax.Array, v_bio: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return basis_matrices(c_rb, v_bio), (c_rb, v_bio)


def _backward(residuals: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    c_rb, v_bio = residuals
    flat = _flat(cotangent)
    of_bases = jax.lax.dot_general(c_rb, flat, (((0,), (0,)), ((), ())))
    return jax.lax.dot_general(flat, _flat(v_bio), (((1,), (1,)), ((), ()))), of_bases.reshape(v_bio.shape)


def _flat(stack: jax.Array) -> jax.Array:
    return stack.reshape(stack.shape[0], math.prod(stack.shape[1:]))


basis_matrices.defvjp(_forward, _backward)
