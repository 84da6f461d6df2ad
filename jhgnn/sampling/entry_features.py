"""Features of the edges behind a sampled table's entries, as the model reads them.

A mean reads them beside the table. Attention needs a logit for each entry, so each entry becomes a sender of its own,
which has the row of the slot that it stands for and that slot's logit plus the edge's: any op then reads them.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.sampled import NeighborTable

Array = Any


def with_entry_features(table: NeighborTable, positions: Array, features: Array, *, splits: bool) -> NeighborTable:
    """The table with the features of each entry's edge; NumPy, with an axis over shards or without, or traced.

    Args:
        table: as it was drawn.
        positions: int `[..., num_targets, width]`, the edge of each entry among the relation's in-edges, in order; of
            padding, anything.
        features: float32 `[num_edges, columns]`, of the relation's edges in that order; there may be none.
        splits: whether each entry becomes a sender of its own. Padding then repeats the first.

    Returns:
        a table with `entry_features`, zeros for padding, and with `entry_senders` where it is split.
    """
    mask, shape = table.mask, table.senders.shape
    positions = positions.reshape(shape)
    if isinstance(features, np.ndarray):
        rows: Array = np.zeros((*shape, features.shape[1]), np.float32)
        rows[mask] = features[positions[mask]]
    elif features.shape[0] == 0:  # of which XLA gathers nothing
        rows = jnp.zeros((*shape, features.shape[1]), jnp.float32)
    else:
        rows = jnp.where(mask[..., None], features.at[positions].get(mode="clip"), 0.0)
    if not splits:
        return dataclasses.replace(table, entry_features=rows)
    xp, num_entries = (np if isinstance(mask, np.ndarray) else jnp), table.num_targets * table.width
    entries = xp.arange(num_entries, dtype=np.int32).reshape(table.num_targets, table.width)
    return dataclasses.replace(
        table,
        senders=xp.where(mask, entries, 0).astype(np.int32),
        entry_senders=table.senders,
        entry_features=rows,
        num_sources=num_entries,
    )


def edge_features_of(table: NeighborTable) -> EdgeFeatures:
    """What a layer reads of a traced table's `entry_features`: those of its senders, or means over its entries."""
    rows: jax.Array = table.entry_features  # type: ignore[assignment]
    if table.entry_senders is not None:
        return EdgeFeatures(rows.reshape(-1, rows.shape[-1]), table.entry_senders.reshape(-1))
    counts = jnp.maximum(table.num_neighbors, 1).astype(rows.dtype)
    return EdgeFeatures(rows.sum(axis=1) / counts[:, None])
