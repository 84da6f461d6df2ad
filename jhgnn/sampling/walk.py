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
    rows = jnp.broadcast_to(keys[0][:, None], shape), jnp.broadcast_to(keys[1][:, None], shape)
    walkers = jnp.broadcast_to(vertices[:, None], shape)
    walks = jnp.broadcast_to(jnp.arange(num_walks, dtype=jnp.uint32)[None, :], shape)
    for step, csr in enumerate(steps):
        if csr.indices.shape[0] == 0:
            return jnp.full(shape, PADDING)
        known = jnp.maximum(walkers, 0)
        start = csr.indptr.at[known].get(mode="promise_in_bounds")
        degrees = jnp.where(walkers >= 0, csr.indptr.at[known + 1].get(mode="promise_in_bounds") - start, 0)
        counters = walks * jnp.uint32(len(steps)) + jnp.uint32(step)
        offsets = uniform_below(rows, counters, degrees.astype(jnp.uint32)).astype(jnp.int32)
        positions = jnp.where(degrees > 0, start + offsets, 0)
        walkers = jnp.where(degrees > 0, csr.indices.at[positions].get(mode="promise_in_bounds"), PADDING)
    return walkers


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
