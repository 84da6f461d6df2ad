"""The rows that a model's first layer reads: features, or learnable embeddings for types that have none."""

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn.feature_projection import Rows
from jhgnn.nn.inputs import GraphSpec, ModelInputs


class InputEmbeddings(nnx.Module):
    """A learnable `[num_nodes, width]` table for each of the given types that has no features.

    A mini-batch step puts the rows that its batch reads in the place of each table before it calls the model. The
    gradients then have the size of the batch and not of the table.
    """

    def __init__(self, node_types: Collection[str], spec: GraphSpec, width: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.glorot_uniform()
        self.tables = nnx.Dict(
            {
                # One row stands in for those of a type without nodes: its initializer divides by their number.
                node_type: nnx.Param(init(rngs.params(), (max(1, count), width))[:count])
                for node_type in sorted(node_types)
                if node_type not in spec.feature_widths
                for count in [spec.num_nodes[node_type]]
            }
        )
        self.widths = {node_type: spec.feature_widths.get(node_type, width) for node_type in sorted(node_types)}

    def __call__(self, inputs: ModelInputs) -> dict[str, Rows]:
        """The rows of every given type: its features, or its table; a type that these inputs do not meet is absent."""
        tables = {node_type: inputs.table_rows(table[...], node_type) for node_type, table in self.tables.items()}
        found: dict[str, Rows | None] = {**tables, **jax.tree.map(computable, inputs.features)}
        return {node_type: rows for node_type in self.widths if (rows := found.get(node_type)) is not None}


def computable(rows: Any) -> Any:
    """Rows of features as steps compute with them: those that were kept as bfloat16 as float32, on host or devices.

    Dropout would round them again otherwise; where the model computes in bfloat16, XLA takes both casts out.
    """
    return rows.astype(jnp.float32) if rows.dtype == jnp.bfloat16 else rows


def tables_of(params: Any) -> Mapping[str, jax.Array]:
    """The embedding tables among a model's parameters, by node type."""
    return params.get("embeddings", {}).get("tables", {})


def with_tables(params: Any, tables: Mapping[str, Any]) -> Any:
    """Parameters, or an optimizer's state of their structure, with other arrays in the place of the tables."""
    if "tables" not in params.get("embeddings", {}):
        return params
    return params | {"embeddings": params["embeddings"] | {"tables": dict(tables)}}
