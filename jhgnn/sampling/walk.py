"""Metapath random walks on the device: where walks end, and the ends visited most. The C++ copy is in `sampling.cc`."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import PADDING
from jhgnn.graph.semantic_graph import Csr
from jhgnn.sampling.draw import Keys, uniform_below

Array = Any


def walk_ends(keys: Keys, steps: Sequence[Csr], vertices: Array, num_walks: int) -> Array:
    """Where walks from each vertex end, following one uniform in-edge a step.

    Args:
        keys: of `vertex_keys`, uint32 `[n]` each.
        steps: in-edges of each step's relation, from the target backwards.
        vertices: int32 `[n]`, `PADDING` for none.

    Returns:
        int32 `[n, num_walks]`, `PADDING` where a walk met a vertex without in-edges.
    """
    shape = (len(vertices), num_walks)
    rows, walks = walkers_keys(keys, shape)
    walkers = jnp.broadcast_to(vertices[:, None], shape)
    for step, csr in enumerate(steps):
        walkers = one_step(rows, walks * jnp.uint32(len(steps)) + jnp.uint32(step), csr, walkers)
    return walkers


def walkers_keys(keys: Keys, shape: tuple[int, int]) -> tuple[Keys, Array]:
    """The keys of each walk's first vertex, and the walk's number among those of that vertex, all of that shape."""
    walks = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.uint32)[None, :], shape)
    return (jnp.broadcast_to(keys[0][:, None], shape), jnp.broadcast_to(keys[1][:, None], shape)), walks


def one_step(keys: Keys, counters: Array, csr: Csr, rows: Array) -> Array:
    """The sender of one uniform in-edge of each row; `PADDING` where a row has none.

    Args:
        keys: uint32, of the shape of `rows`: those of the vertex where the walk began.
        counters: uint32, alike: the number of the walk and step.
        csr: in-edges.
        rows: int32, -1 for none.
    """
    if csr.indices.shape[0] == 0:
        return jnp.full(rows.shape, PADDING)
    known = jnp.maximum(rows, 0)
    start = csr.indptr.at[known].get(mode="promise_in_bounds")
    degrees = jnp.where(rows >= 0, csr.indptr.at[known + 1].get(mode="promise_in_bounds") - start, 0)
    offsets = uniform_below(keys, counters, degrees.astype(jnp.uint32)).astype(jnp.int32)
    positions = jnp.where(degrees > 0, start + offsets, 0)
    return jnp.where(degrees > 0, csr.indices.at[positions].get(mode="promise_in_bounds"), PADDING)


def most_visited(ends: Array, width: int) -> tuple[Array, Array, Array]:
    """The `width` distinct ends of each row visited most, ties by ascending id.

    Returns:
        ids int32 `[n, width]` (`PADDING` beyond), how many int32 `[n]`, visits int32 `[n, width]` (0 beyond).
    """
    num_walks = ends.shape[1]
    ends = jnp.sort(ends, axis=1)
    column = jnp.broadcast_to(jnp.arange(num_walks, dtype=jnp.int32)[None, :], ends.shape)
    starts = jnp.concatenate([jnp.ones_like(ends[:, :1], bool), ends[:, 1:] != ends[:, :-1]], axis=1)
    # The next run's start, scanning from the right, ends this run.
    following = jnp.where(starts, column, num_walks)[:, 1:]
    following = jnp.concatenate([following, jnp.full_like(ends[:, :1], num_walks)], axis=1)
    stops = jax.lax.cummin(following, axis=1, reverse=True)
    visits = jnp.where(starts & (ends >= 0), stops - column, 0)
    negated, ids = jax.lax.sort((-visits, ends), dimension=1, num_keys=2)
    visits, ids = -negated[:, :width], ids[:, :width]
    return jnp.where(visits > 0, ids, PADDING), jnp.sum(visits > 0, axis=1, dtype=jnp.int32), visits
