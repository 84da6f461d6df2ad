"""Negative sampling for link prediction: nodes to put in the place of a true head or tail, from the one hash.

What is drawn is a pure function of (seed, step, side, position): nothing to store, the same in NumPy and in jnp.
"""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jhgnn.sampling.draw import stream_keys, uniform_below, vertex_keys

Array = Any
Side = Literal["head", "tail"]
NEGATIVE_STREAM = 0xFFFFFFFE  # in the place of a hop, which never comes to that; the shuffle has the number after
SIDES: tuple[Side, Side] = ("head", "tail")


def negative_nodes(seed: Array, step: Array, side: Side, count: int, num_nodes: int, attempt: int = 0) -> Array:
    """Uniform nodes of a type of `num_nodes`, with repeats, int32 `[count]`.

    Args:
        seed, step: Python integers in [0, 2**32) (NumPy out), or uint32 scalars under tracing.
        side: which end they replace; the two sides draw different nodes.
        count: at least 0.
        attempt: another draw for the same positions, where a node drawn is not to be used.
    """
    keys = stream_keys(seed, step, NEGATIVE_STREAM, SIDES.index(side))
    xp = np if isinstance(keys[0], np.ndarray) else jnp
    positions = xp.arange(count, dtype=np.uint32)
    own = vertex_keys(keys, positions)
    counters, bounds = (xp.full(count, value, np.uint32) for value in (attempt, num_nodes))
    return uniform_below(own, counters, bounds).astype(np.int32)
