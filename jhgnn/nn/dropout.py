"""Dropout as a pure function of (seed, row, column): the same mask on one device or eight, stored or recomputed."""

import zlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.random.counter_hash import GOLDEN, edge_bits, keep_threshold, mix


def site_seed(step_seed: jax.Array, site: str) -> jax.Array:
    """The seed of one place in the model, uint32 scalar, from the step's seed and the place's name."""
    return mix(step_seed + jnp.uint32(_number(site)))


def site_seeds(step_seed: jax.Array, sites: Sequence[str]) -> jax.Array:
    """`site_seed` of several places, uint32 `[places]`."""
    return mix(step_seed + np.array([_number(site) for site in sites], np.uint32))


def drop_rows(x: jax.Array, seed: jax.Array, rate: float, ids: jax.Array | None = None) -> jax.Array:
    """Zeroes elements of `[rows, width]` with probability `rate` and scales the kept ones by 1 / (1 - rate).

    `ids`, `[rows]`, are the rows' node ids in the whole graph; with them, a row of a part of the graph drops the
    elements that it drops in the whole graph. Without them row i is node i.
    """
    if rate == 0.0:
        return x
    rows = (jnp.arange(x.shape[0]) if ids is None else ids).astype(jnp.uint32)[:, None]
    columns = jnp.arange(x.shape[1], dtype=jnp.uint32)[None, :]
    kept = edge_bits(seed, rows, columns, jnp.zeros((1, 1), jnp.uint32)) >= jnp.uint32(keep_threshold(rate))
    return jnp.where(kept, x / (1.0 - rate), 0.0).astype(x.dtype)


def _number(site: str) -> int:
    return (zlib.crc32(site.encode()) * GOLDEN) % 2**32
