"""For sampled blocks: gather `[num_targets, width]` neighbours and reduce the masked rows; no segments at all.

On the CPU, where the table comes with its compressed edges, the native kernel sums along them in both directions.
"""

import jax
import jax.numpy as jnp

from jhgnn.graph.sampled import NeighborTable
from jhgnn.ops.neighbor_mean import native
from jhgnn.ops.neighbor_table import weighted_sum


def neighbor_mean(table: NeighborTable, x: jax.Array) -> jax.Array:
    """Mean of each target's sampled neighbours, as `jhgnn.ops.neighbor_mean` has it over all of them.

    Args:
        table: of a `SampledBlocks`.
        x: `[table.num_sources, width]`, float32 or bfloat16 (summed in float32).

    Returns:
        `[table.num_targets, width]` in x's dtype; zeros for targets without neighbours and for padding slots.

    Raises:
        ValueError: x has another number of rows.
    """
    if x.ndim != 2 or x.shape[0] != table.num_sources:
        raise ValueError(f"neighbor_mean of {table.name!r} got x {x.shape}; need [{table.num_sources}, width]")
    if table.edges is not None:
        return native.neighbor_mean(table.edges, x)[: table.num_targets]
    accumulator = jnp.promote_types(x.dtype, jnp.float32)
    sums = weighted_sum(table.senders, table.mask.astype(accumulator), x)
    counts = jnp.maximum(table.num_neighbors, 1).astype(accumulator)
    return (sums / counts[:, None]).astype(x.dtype)
