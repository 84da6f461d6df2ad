"""JAX's random keys on the counter hash, for initial weights.

The same weights on every backend, which XLA's own generator does not promise, from a program that compiles in less than
half of the time (`docs/experiments.md`).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import random as extend

from jhgnn.errors import InputError
from jhgnn.random.counter_hash import GOLDEN, mix


def key(seed: int) -> jax.Array:
    """A typed key for `jax.random` and `nnx.Rngs`; one uint32 of state, enough for the arrays of a model."""
    return jax.random.key(seed, impl=_HASH)


def _seed(seed: jax.Array) -> jax.Array:
    return mix(jnp.asarray(seed).astype(jnp.uint32) + jnp.uint32(GOLDEN)).reshape(1)


def _fold_in(state: jax.Array, data: Any) -> jax.Array:
    """Distinct for distinct data: `mix` is a bijection."""
    return mix(state + mix(jnp.asarray(data).astype(jnp.uint32) + jnp.uint32(GOLDEN)))


def _split(state: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    counts = jnp.arange(math.prod(shape), dtype=jnp.uint32)
    return _fold_in(state[0], counts).reshape(*shape, 1)


def _random_bits(state: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    """Unsigned integers of 8, 16 or 32 bits, of any shape; the narrow ones are the low bits of 32.

    Raises:
        NotImplementedError: another width, as float64 draws need.
        InputError: over 2**32 numbers in one array.
    """
    size = math.prod(shape)
    if bit_width not in (8, 16, 32):
        raise NotImplementedError(f"numbers of {bit_width} bits: need 8, 16 or 32 bits")
    if size > 2**32:
        raise InputError(
            f"a weight of shape {list(shape)} would have {size:,} numbers ({size * bit_width / 8 / 2**30:,.0f} GiB),"
            f" over the limit of 2**32 for one array; lower model.hidden"
        )
    bits = mix(state[0] + mix(jax.lax.iota(jnp.uint32, size))).reshape(shape)
    return bits.astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


_HASH = extend.define_prng_impl(
    key_shape=(1,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="jhgnn_hash", tag="jhh"
)
