"""For sampled blocks: gather `[num_targets, width]` neighbours and reduce the masked rows; no segments at all."""

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.neighbor_table import weighted_sum


def neighbor_mean(table: NeighborTable, x: jax.Array) -> jax.Array:
    """See `jhgnn.ops.neighbor_mean`."""
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = weighted_sum(table.senders, table.mask.astype(accumulator), x)
    counts = jnp.maximum(table.num_neighbors, 1).astype(accumulator)
    return (sums / counts[:, None]).astype(x.dtype)
