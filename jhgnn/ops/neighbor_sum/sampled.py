"""The weighted sum of a target's sampled neighbours, as the platform wants it: on GPUs without a scatter."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.neighbor_sum import bucketed
from jhgnn.ops.neighbor_table import weighted_sum
from jhgnn.runtime.platform import GPUS, target_platform


def sampled_neighbor_sum(table: NeighborTable, x: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum along each target's entries of the entry's weight times the sender's row, in float32 at least.

    Args:
        table: on the device.
        x: `[num_sources, width]`, floating.
        weights: `[num_targets, width of the table]`, floating, 0 for padding.

    Returns:
        `[num_targets, width]` in x's dtype; zeros for targets without neighbours. Padding has no gradient on a GPU.
    """
    if target_platform() in GPUS:
        return bucketed.sampled_neighbor_sum(table, x, weights)
    return weighted_sum(table.senders, weights.astype(jnp.promote_types(x.dtype, jnp.float32)), x).astype(x.dtype)
