"""Negative sampling for link prediction: random nodes to put in the place of a true head or tail.

What is drawn is a pure function of (seed, step, side, position), the same in NumPy and in jnp, so nothing is stored.
"""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jhgnn.sampling.draw import stream_keys, uniform_below, vertex_keys

Array = Any
Side = Literal["head", "tail"]
NEGATIVE_STREAM = 0xFFFFFFFE  # in the place of a hop, which never comes to that; the shuffle has the number after
SIDES: tuple[Side, Side] = ("head", "tail")


def negative_nodes(
    seed: Array, step: Array, side: Side, positions: Array, num_nodes: Array | int, attempt: Array | int = 0
) -> Array:
    """A uniform node for each position, with repeats, int32 of the positions' shape.

    Args:
        seed, step: Python integers in [0, 2**32), or uint32 scalars under tracing.
        side: the end that the nodes replace; the two sides draw different nodes.
        positions: integers in [0, 2**32), NumPy or jnp, as the result is. Draws of different positions are independent.
        num_nodes: nodes of the type: one number, or one for each position.
        attempt: number of the draw, where several are made for the same positions; one, or one for each position.
    """
    xp = np if isinstance(positions, np.ndarray) else jnp
    keys = stream_keys(seed, step, NEGATIVE_STREAM, SIDES.index(side))
    keys = tuple(key.reshape((1,) * positions.ndim) for key in keys)
    own = vertex_keys(keys, positions)
    counters, bounds = (
        xp.broadcast_to(xp.asarray(value, np.uint32), positions.shape) for value in (attempt, num_nodes)
    )
    return uniform_below(own, counters, bounds).astype(np.int32)
