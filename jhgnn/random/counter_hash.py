"""The one counter-based hash: random bits as a pure function of integers, the same in NumPy, jnp and C++.

Edge dropout and sampling draw from it, so every implementation and every device sees the same draws, and a backward
pass recomputes a mask instead of storing it. `native/counter_hash.h` is the C++ copy; tests compare them bit for bit.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any

GOLDEN = 0x9E3779B9  # 2**32 / golden ratio: consecutive multiples spread evenly


def mix(x: Array) -> Array:
    """A bijection of uint32 that flips each output bit with probability near 1/2 for any input bit (any shape).

    Source: "lowbias32" of C. Wellons' hash prospector (measured bias 0.174).
    """
    x = x ^ (x >> 16)
    x = x * _constant(x, 0x7FEB352D)
    x = x ^ (x >> 15)
    x = x * _constant(x, 0x846CA68B)
    return x ^ (x >> 16)


def edge_bits(seed: Array, senders: Array, receivers: Array, heads: Array) -> Array:
    """Random uint32 of (seed, sender, receiver, head); arguments uint32, broadcast against each other.

    An endpoint's mix does not depend on the other one, so a kernel mixes twice a vertex and once an edge and head.
    Parallel edges draw the same bits.
    """
    sender_key = mix(senders ^ mix(seed))
    receiver_key = mix(receivers ^ mix(seed + _constant(seed, GOLDEN)))
    return mix((sender_key + receiver_key) ^ (heads * _constant(heads, GOLDEN)))


def keep_threshold(rate: float) -> int:
    """An edge is dropped where its bits are below this; `rate` in [0, 1)."""
    return min(int(rate * 2.0**32), 2**32 - 1)


def _constant(like: Array, value: int) -> Array:
    return np.uint32(value) if isinstance(like, np.ndarray | np.generic) else jnp.uint32(value)
