"""The options of attention along edges: what they may be, and as the kernels of both platforms are given them."""

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.random.counter_hash import keep_threshold


def checked_seed(negative_slope: float, dropout_rate: float, dropout_seed: jax.Array | None) -> jax.Array:
    """The seed, uint32 scalar; 0 where nothing is dropped and none is given.

    Raises:
        ValueError: a slope or a rate out of range, or a rate without a seed.
    """
    if not 0.0 <= dropout_rate < 1.0 or not 0.0 <= negative_slope <= 1.0:
        raise ValueError(f"need dropout_rate in [0, 1) and negative_slope in [0, 1]: {dropout_rate}, {negative_slope}")
    if dropout_rate > 0.0 and dropout_seed is None:
        raise ValueError(f"dropout_rate {dropout_rate} needs a dropout_seed")
    return jnp.asarray(0 if dropout_seed is None else dropout_seed, jnp.uint32)


def kernel_attributes(slope: float, rate: float) -> dict[str, np.generic]:
    """The slope, the threshold below which an edge's hash drops it, and what the kept ones are scaled by."""
    return {
        "slope": np.float32(slope),
        "threshold": np.uint32(keep_threshold(rate) if rate > 0.0 else 0),
        "scale": np.float32(1.0 / (1.0 - rate)),
    }
