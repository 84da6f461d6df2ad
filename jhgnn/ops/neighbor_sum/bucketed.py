"""For GPUs: loops over degree buckets; backward, the transposed edges for x and a dot product an edge for weights."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.ops.bucketed_edges import backwards_of, forwards_of, has_edges, turned_rows
from jhgnn.ops.bucketed_rows import sum_rows
from jhgnn.ops.neighbor_sum.edge_dot import edge_dot
from jhgnn.ops.segment import coo_of


def neighbor_sum(graph: SemanticGraph, x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """See `jhgnn.ops.neighbor_sum`."""
    if weights is None:
        return _plain(graph, x)
    return _weighted(graph, x, weights)


@jax.custom_vjp
def _plain(graph: SemanticGraph, x: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    return sum_rows(forwards_of(graph), lambda own: own.of_columns(x).astype(accumulator)).astype(x.dtype)


def _plain_forward(graph: SemanticGraph, x: jax.Array) -> tuple[jax.Array, SemanticGraph]:
    return _plain(graph, x), graph


def _plain_backward(graph: SemanticGraph, cotangent: jax.Array) -> tuple[None, jax.Array]:
    accumulator = jnp.promote_types(cotangent.dtype, jnp.float32)
    sums = sum_rows(backwards_of(graph), lambda own: own.of_columns(cotangent).astype(accumulator))
    return None, sums.astype(cotangent.dtype)


_plain.defvjp(_plain_forward, _plain_backward)


@jax.custom_vjp
def _weighted(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> jax.Array:
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = sum_rows(
        forwards_of(graph),
        lambda own: own.of_entries(weights).astype(accumulator)[..., None] * own.of_columns(x).astype(accumulator),
    )
    return sums.astype(x.dtype)


def _weighted_forward(graph: SemanticGraph, x: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple]:
    return _weighted(graph, x, weights), (graph, x, weights)


def _weighted_backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    graph, x, weights = residuals
    coo, accumulator = coo_of(graph), jnp.promote_types(x.dtype, jnp.float32)
    by_sender = weights.at[coo.incoming_position].get(mode="promise_in_bounds", unique_indices=True)
    wide = cotangent.astype(accumulator)
    sums = sum_rows(
        backwards_of(graph),
        lambda own: own.of_entries(by_sender).astype(accumulator)[..., None] * own.of_columns(wide),
    )
    return None, sums.astype(x.dtype), edge_dot(graph, x, wide).astype(weights.dtype)


_weighted.defvjp(_weighted_forward, _weighted_backward)


def sampled_neighbor_sum(table: NeighborTable, x: jax.Array, weights: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_sum.sampled`; backward, the entries are sorted by sender in the program."""
    if not has_edges(table):
        return jnp.zeros((table.num_targets, x.shape[1]), x.dtype)
    return _of_table(table, x, weights)


@jax.custom_vjp
def _of_table(table: NeighborTable, x: jax.Array, weights: jax.Array) -> jax.Array:
    accumulator, flat = jnp.promote_types(x.dtype, jnp.float32), weights.reshape(-1)
    sums = sum_rows(
        forwards_of(table),
        lambda own: own.of_entries(flat).astype(accumulator)[..., None] * own.of_columns(x).astype(accumulator),
    )
    return sums.astype(x.dtype)


def _of_table_forward(table: NeighborTable, x: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple]:
    return _of_table(table, x, weights), (table, x, weights)


def _of_table_backward(residuals: tuple, cotangent: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    table, x, weights = residuals
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    wide = cotangent.astype(accumulator)
    rows, positions = turned_rows(table.senders, table.mask, table.num_sources)
    by_sender = weights.reshape(-1).at[positions].get(mode="promise_in_bounds", unique_indices=True)
    sums = sum_rows(rows, lambda own: own.of_entries(by_sender).astype(accumulator)[..., None] * own.of_columns(wide))
    senders = x.at[table.senders].get(mode="promise_in_bounds").astype(accumulator)
    of_weights = jnp.where(table.mask, jnp.sum(senders * wide[:, None], axis=-1), 0.0)
    return None, sums.astype(x.dtype), of_weights.astype(weights.dtype)


_of_table.defvjp(_of_table_forward, _of_table_backward)
