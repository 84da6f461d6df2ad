"""The one definition of a draw: which neighbours a vertex keeps, and where a walk goes, from a counter-based hash.

Everything is a pure function of (seed, step, hop, relation, vertex), in uint32 arithmetic that gives the same bits in
NumPy, in jnp (without x64) and in `native/sampling_draw.h`. A draw does not depend on what else is drawn. So host,
device, shards and prefetching see the same samples, and a vertex that is met twice draws the same neighbours.
"""

import zlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from jhgnn.graph.schema import Metapath, Relation
from jhgnn.random.counter_hash import GOLDEN, mix

Array = Any
Keys = tuple[Array, Array]
"""Two independent uint32 keys: one hash of 32 bits would favour some of 2**31 neighbours over others."""

SALTS = (0x243F6A88, 0x85A308D3)  # the first digits of pi: nothing up our sleeve
MAX_FAN_OUT = 1024


def relation_key(relation: Relation | Metapath) -> int:
    """uint32 that names a relation or metapath in the hash; the same whatever else the schema or a partition holds."""
    parts = relation.relations if isinstance(relation, Metapath) else (relation,)
    return zlib.crc32("/".join(str(part) for part in parts).encode())


def stream_keys(seed: Array, step: Array, hop: int, relation: int) -> Keys:
    """The keys of one (seed, step, hop, relation).

    Python integers in [0, 2**32) or uint32 scalars under tracing. Returns arrays of shape `[1]`, NumPy unless an
    argument is a jax array.
    """
    xp = np if all(isinstance(word, int | np.integer) for word in (seed, step)) else jnp
    words = [xp.asarray(word, xp.uint32).reshape(1) for word in (seed, step, hop, relation)]
    first, second = (xp.full(1, salt, xp.uint32) for salt in SALTS)
    for word in words:
        first, second = _fold(first, word), _fold(second, word)
    return first, second


def vertex_keys(keys: Keys, vertices: Array) -> Keys:
    """The keys of each vertex, uint32 `[n]`; a bijection of the vertex, so no two of one stream share a first key."""
    words = vertices.astype(np.uint32)
    return _fold(keys[0], words), _fold(keys[1], words)


def uniform_below(keys: Keys, counters: Array, bounds: Array) -> Array:
    """Uniform integers in `[0, bounds)`, uint32; a bound's values differ in likelihood by at most bounds / 2**64.

    `keys`, `counters` and `bounds` are uint32 arrays of one shape; a bound of 0 gives 0.
    """
    spread = counters * _like(counters, GOLDEN)
    high, low = mix(keys[0] + spread), mix(keys[1] + spread)
    # floor((high * 2**32 + low) * bounds / 2**64): the high word of a 64 x 32 bit product.
    product = high * bounds
    carry = (product + _multiply_high(low, bounds)) < product
    return _multiply_high(high, bounds) + carry.astype(np.uint32)


def neighbor_offsets(keys: Keys, degrees: Array, fan_out: int) -> tuple[Array, Array]:
    """Offsets into each vertex's neighbour list of a uniform subset of `fan_out` of them, by Floyd's algorithm.

    Every subset of that size is equally likely. A vertex with no more neighbours than that keeps them all, in order.

    Args:
        keys: of `vertex_keys`, uint32 `[n]` each.
        degrees: integer `[n]`, below 2**31.
        fan_out: 1 to `MAX_FAN_OUT`.

    Returns:
        offsets int32 `[n, fan_out]` and how many of each row count, int32 `[n]`; the rest of a row is 0.

    Source: Bentley and Floyd, A sample of brilliance, CACM 1987.
    """
    xp = np if isinstance(degrees, np.ndarray) else jnp
    degrees = degrees.astype(np.uint32)[:, None]
    column = xp.arange(fan_out, dtype=np.uint32)[None, :]
    wide = degrees > _like(degrees, fan_out)
    base = xp.where(wide, degrees - _like(degrees, fan_out), _like(degrees, 0))
    shape = (len(degrees), fan_out)
    rows = tuple(xp.broadcast_to(key[:, None], shape) for key in keys)
    counters, bounds = xp.broadcast_to(column, shape), base + column + _like(column, 1)
    drawn = uniform_below((rows[0], rows[1]), counters, bounds)
    # Floyd takes drawn[i], or base + i where that is taken: drawn before, or itself the replacement base + j of an
    # earlier j. The second is a chain of earlier columns, followed by pointer doubling instead of one column at a time.
    earlier = xp.tril(xp.ones((fan_out, fan_out), bool), -1)[None, :, :]
    taken = ((drawn[:, :, None] == drawn[:, None, :]) & earlier).any(axis=2)
    chained = (drawn >= base) & (drawn < base + column)
    pointer = xp.where(chained, drawn - base, counters).astype(np.int32)
    for _ in range((fan_out - 1).bit_length()):
        taken = taken | xp.take_along_axis(taken, pointer, axis=1)
        pointer = xp.take_along_axis(pointer, pointer, axis=1)
    picks = xp.where(taken, base + counters, drawn)
    kept = xp.minimum(degrees, _like(degrees, fan_out))
    offsets = xp.where(wide, picks, xp.where(column < kept, counters, _like(column, 0)))
    return offsets.astype(np.int32), kept[:, 0].astype(np.int32)


def _fold(key: Array, word: Array) -> Array:
    return mix((key ^ word) + _like(key, GOLDEN))


def _multiply_high(x: Array, y: Array) -> Array:
    """The upper 32 bits of a 32 x 32 bit product, from 16-bit halves: jnp has no uint64 without x64."""
    half, low = _like(x, 16), _like(x, 0xFFFF)
    x_high, x_low, y_high, y_low = x >> half, x & low, y >> half, y & low
    cross_a, cross_b = x_low * y_high, x_high * y_low
    middle = (x_low * y_low >> half) + (cross_a & low) + (cross_b & low)
    return x_high * y_high + (cross_a >> half) + (cross_b >> half) + (middle >> half)


def _like(array: Array, value: int) -> Array:
    return np.uint32(value) if isinstance(array, np.ndarray) else jnp.uint32(value)
