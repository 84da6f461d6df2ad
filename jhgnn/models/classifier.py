"""What all models share: embeddings for featureless types, and the classifier of the loss computation (LC) stage."""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.models.inputs import GraphSpec, ModelInputs
from jhgnn.nn.feature_projection import Rows
from jhgnn.nn.stage import stage
from jhgnn.ops.dense_matmul import dense_matmul


class ModelOutput(NamedTuple):
    """Of the target type: `logits` float32 `[num_targets, num_classes]`, `embeddings` `[num_targets, hidden]`."""

    logits: jax.Array
    embeddings: jax.Array


class InputEmbeddings(nnx.Module):
    """A learnable `[num_nodes, width]` table for each of the given types that has no features.

    In a mini-batch, the tables stand for the batch's rows of them: the step gathers those, so that their gradients,
    too, have the size of the batch.
    """

    def __init__(self, node_types: Collection[str], spec: GraphSpec, width: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.glorot_uniform()
        self.tables = nnx.Dict(
            {
                node_type: nnx.Param(init(rngs.params(), (spec.num_nodes[node_type], width)))
                for node_type in sorted(node_types)
                if node_type not in spec.feature_widths
            }
        )
        self.widths = {node_type: spec.feature_widths.get(node_type, width) for node_type in sorted(node_types)}

    def __call__(self, inputs: ModelInputs) -> dict[str, Rows]:
        """The rows of every given type: its features, or its table; a type that these inputs do not meet is absent."""
        tables = {node_type: inputs.table_rows(table[...], node_type) for node_type, table in self.tables.items()}
        found: dict[str, Rows | None] = {**tables, **inputs.features}
        return {node_type: rows for node_type in self.widths if (rows := found.get(node_type)) is not None}


class Classifier(nnx.Module):
    """A linear map from a target's embedding to class logits, in float32."""

    def __init__(self, width: int, num_classes: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.glorot_uniform()
        self.linear = nnx.Linear(width, num_classes, kernel_init=init, rngs=rngs)

    def __call__(self, embeddings: jax.Array) -> ModelOutput:
        with stage("LC", part="classifier"):
            embeddings = embeddings.astype(jnp.float32)
            bias = self.linear.bias
            assert bias is not None
            logits = dense_matmul(embeddings, self.linear.kernel[...]) + bias[...][None]
            return ModelOutput(logits, embeddings)
