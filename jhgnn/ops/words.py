"""Arrays of several types as one buffer of integers, so that devices meet once; nothing ever normalises their bits."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

WORD_BYTES = 4


def to_words(leaves: Sequence[jax.Array]) -> jax.Array:
    """Arrays `[n, ...]` of 4 or 8 bytes a number, side by side as int32 `[n, words]`."""
    return jnp.concatenate(
        [jax.lax.bitcast_convert_type(leaf, jnp.int32).reshape(leaf.shape[0], -1) for leaf in leaves], axis=1
    )


def from_words(words: jax.Array, like: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """The arrays of `to_words`, from the shapes and dtypes that they had, whose first axis may differ."""
    borders = np.cumsum([num_words(leaf) for leaf in like])[:-1]
    found = []
    for leaf, own in zip(like, jnp.split(words, borders, axis=1), strict=True):
        shape = (words.shape[0], *leaf.shape[1:])
        if leaf.dtype.itemsize > WORD_BYTES:
            shape = (*shape, leaf.dtype.itemsize // WORD_BYTES)
        found.append(jax.lax.bitcast_convert_type(own.reshape(shape), leaf.dtype))
    return found


def num_words(leaf: jax.ShapeDtypeStruct) -> int:
    """Words of one row of an array `[n, ...]`."""
    return int(np.prod(leaf.shape[1:], dtype=np.int64)) * leaf.dtype.itemsize // WORD_BYTES
