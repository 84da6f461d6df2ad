"""An order between computations that need nothing of each other, such as collectives of programs that differ.

Devices meet in collectives one after the other. Where all run one program, its schedule is theirs. Where programs
differ, each is scheduled by itself: collectives that nothing ties to each other would come in any order, and those
whose results one program has no use for would be missing there.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jhgnn.ops.words import to_words


def after(values: Any, earlier: Any) -> Any:
    """`values`, the same to the bit, which no program computes before `earlier`.

    What makes them wait is a word that is always 0, computed from the first and the last number of each array of
    `earlier`. XLA does not know that it is. A barrier of XLA's does not do: what nobody reads of one is dropped.

    Args:
        values: a tree of arrays of numbers of 2, 4 or 8 bytes, any shapes.
        earlier: another one, of which some array has a number.
    """
    word = jnp.zeros((), jnp.int32)
    for leaf in jax.tree.leaves(earlier):
        if leaf.size:
            flat = leaf.reshape(-1)
            word += to_words([jnp.stack([flat[0], flat[-1]])[:, None]]).sum(dtype=jnp.int32)
    zero = jnp.minimum(word, 0) & jnp.maximum(word, 0)

    def waiting(leaf: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"int{8 * leaf.dtype.itemsize}"))
        return jax.lax.bitcast_convert_type(bits | zero.astype(bits.dtype), leaf.dtype)

    return jax.tree.map(waiting, values)
