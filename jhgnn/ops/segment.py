"""Gathers and sums along a semantic graph in XLA, with no scatter in either direction.

XLA's scatters are what is slow (on GPU up to 2000 times: JAX issues 39959 and 38806), so the backward pass of a gather
is a segment sum over the transposed edges, whose segment ids are sorted.
"""

import jax
import jax.numpy as jnp

from jhgnn.graph.semantic_graph import Coo, SemanticGraph


def coo_of(graph: SemanticGraph) -> Coo:
    """The graph's `coo` view.

    Raises:
        ValueError: the graph was placed without it.
    """
    if graph.coo is None:
        raise ValueError(f"semantic graph {graph.name!r} was placed without its 'coo' view, which 'segment' reads")
    return graph.coo


def sum_by_receiver(graph: SemanticGraph, values: jax.Array) -> jax.Array:
    """Sums `[num_edges, ...]` into `[num_targets, ...]`; its backward pass is a gather."""
    return jax.ops.segment_sum(values, coo_of(graph).receivers, graph.num_targets, indices_are_sorted=True)


def max_by_receiver(graph: SemanticGraph, values: jax.Array) -> jax.Array:
    """Maxima of `[num_edges, ...]` in `[num_targets, ...]`; -inf where a target has no edge."""
    return jax.ops.segment_max(values, coo_of(graph).receivers, graph.num_targets, indices_are_sorted=True)


def of_receivers(graph: SemanticGraph, values: jax.Array) -> jax.Array:
    """Gathers `[num_targets, ...]` onto the edges, `[num_edges, ...]`; backward sums sorted segments."""
    return values.at[coo_of(graph).receivers].get(mode="promise_in_bounds", indices_are_sorted=True)


@jax.custom_vjp
def of_senders(graph: SemanticGraph, values: jax.Array) -> jax.Array:
    """Gathers `[num_sources, ...]` onto the edges, `[num_edges, ...]`; backward sums over the transposed edges."""
    return values.at[graph.incoming.indices].get(mode="promise_in_bounds")


def _of_senders_forward(graph: SemanticGraph, values: jax.Array) -> tuple[jax.Array, SemanticGraph]:
    return of_senders(graph, values), graph


def _of_senders_backward(graph: SemanticGraph, cotangent: jax.Array) -> tuple[None, jax.Array]:
    coo = coo_of(graph)
    by_sender = cotangent.at[coo.incoming_position].get(mode="promise_in_bounds", unique_indices=True)
    wide = by_sender.astype(jnp.promote_types(cotangent.dtype, jnp.float32))  # a hub's sum in bfloat16 would be lost
    sums = jax.ops.segment_sum(wide, coo.senders, graph.num_sources, indices_are_sorted=True)
    return None, sums.astype(cotangent.dtype)


of_senders.defvjp(_of_senders_forward, _of_senders_backward)


def weighed(graph: SemanticGraph, messages: jax.Array) -> jax.Array:
    """Messages `[num_edges, ...]` times the graph's `message_weights`, where it has some."""
    if graph.message_weights is None:
        return messages
    weights = graph.message_weights.astype(messages.dtype)
    return messages * weights.reshape(-1, *[1] * (messages.ndim - 1))


def in_degrees(graph: SemanticGraph) -> jax.Array:
    """Edges into each target, int32 `[num_targets]`."""
    return jnp.diff(graph.incoming.indptr)
