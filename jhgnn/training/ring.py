"""The migration ring of HopGNN (as LeapGNN, arXiv 2409.00657), literally, as a baseline to measure against.

A step has as many time steps as there are places, or fewer, over which the targets of a place are spread (merging; see
`jhgnn.distributed.shares.merged`). In time step t place s runs model m = (s + t) mod N on those of its
targets that live at s, M_{m,s}; then every model, with the gradient that it has gathered, moves from s to s - 1. Rows
of all time steps are fetched before the first (pre-gathering). The models are truly sent, by `ppermute`, although in a
synchronous step all of them are equal; `owner` gives the same gradient without. Losses are summed and divided by the
number of the batch's examples, which makes the gradient that of one device; the published code averages by sub-batch,
which does not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jhgnn.nn.embeddings import with_tables
from jhgnn.training.micro_batches import PartSums

Params = Any
Rows = Mapping[str, jax.Array]
Loss = Callable[[Params, Rows, Any], tuple[jax.Array, tuple[jax.Array, jax.Array]]]


def sums_of_ring(
    loss: Loss, params: Params, rows: Rows, parts: Any, axis: str, num_places: int
) -> tuple[PartSums, dict[str, jax.Array]]:
    """The sums of a place's parts, one a time step, and the gradients of its rows.

    The gradients of the weights are those of the model that is here last; summed over all places they are the batch's.

    Args:
        loss: (weights beside tables, rows, part) -> summed loss, and number of examples and overflows, float32.
        params: of which the weights beside tables move.
        rows: of the embedding tables, fetched for all parts.
        parts: in the order of the time steps, with their axis first.
        axis: of the mesh.
        num_places: on it.
    """
    model = with_tables(params, {})
    gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    carried, of_rows = jax.tree.map(jnp.zeros_like, (model, dict(rows)))
    total: tuple[jax.Array, ...] = (jnp.zeros(()),) * 3
    for step in range(jax.tree.leaves(parts)[0].shape[0]):
        if step:
            model, carried = _moved((model, carried), axis, num_places)
        part = jax.tree.map(lambda leaf, step=step: leaf[step], parts)
        (value, rest), (own, own_rows) = gradient(model, rows, part)
        total = tuple(map(jnp.add, total, (value, *rest)))
        carried, of_rows = jax.tree.map(jnp.add, (carried, of_rows), (own, dict(own_rows)))
    return PartSums(carried, *total), of_rows


def _moved(tree: Any, axis: str, num_places: int) -> Any:
    """What place s + 1 held, at place s. One buffer, so that a move waits for the gradient before it."""
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.ppermute(vector, axis, [(place, (place - 1) % num_places) for place in range(num_places)]))
