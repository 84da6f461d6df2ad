"""Arrays of several types as one buffer of integers, so that devices meet once; nothing ever normalises their bits."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

WORD_BYTES = 4


def to_words(leaves: Sequence[jax.Array]) -> jax.Array:
    """Arrays `[n, ...]` of 2, 4 or 8 bytes a number, side by side as int32 `[n, words]`.

    An odd count of numbers of 2 bytes is filled up with a zero.
    """
    return jnp.concatenate([_row_words(leaf) for leaf in leaves], axis=1)


def _row_words(leaf: jax.Array) -> jax.Array:
    rows = leaf.shape[0]
    if leaf.dtype.itemsize < WORD_BYTES:
        flat = leaf.reshape(rows, int(np.prod(leaf.shape[1:], dtype=np.int64)))
        pairs = jnp.pad(flat, ((0, 0), (0, flat.shape[1] % 2)))
        leaf = pairs.reshape(rows, pairs.shape[1] // 2, 2)
    words = jax.lax.bitcast_convert_type(leaf, jnp.int32)
    return words.reshape(rows, int(np.prod(words.shape[1:], dtype=np.int64)))


def from_words(words: jax.Array, like: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """The arrays of `to_words`, from the shapes and dtypes that they had, whose first axis may differ."""
    borders = np.cumsum([num_words(leaf) for leaf in like])[:-1]
    found = []
    for leaf, own in zip(like, jnp.split(words, borders, axis=1), strict=True):
        shape = (words.shape[0], *leaf.shape[1:])
        if leaf.dtype.itemsize < WORD_BYTES:
            numbers = jax.lax.bitcast_convert_type(own, leaf.dtype).reshape(words.shape[0], 2 * own.shape[1])
            found.append(numbers[:, : int(np.prod(leaf.shape[1:], dtype=np.int64))].reshape(shape))
            continue
        if leaf.dtype.itemsize > WORD_BYTES:
            shape = (*shape, leaf.dtype.itemsize // WORD_BYTES)
        found.append(jax.lax.bitcast_convert_type(own.reshape(shape), leaf.dtype))
    return found


def num_words(leaf: jax.ShapeDtypeStruct) -> int:
    """Words of one row of an array `[n, ...]`."""
    return -(-int(np.prod(leaf.shape[1:], dtype=np.int64)) * leaf.dtype.itemsize // WORD_BYTES)
