"""GAT on the graph with its types erased (Velickovic et al., ICLR 2018).

It is a control: a heterogeneous model should score higher than one that does not know the types.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.erased import NAME
from jhgnn.nn.block import Block
from jhgnn.nn.erased import ErasedLayer, ErasedModel
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.neighbor_aggregation import AttentionAggregation
from jhgnn.nn.stage import stage


class GATLayer(ErasedLayer):
    r"""One layer (eq. 1-6): rows `[num_nodes, hidden]` to `[num_rows, hidden]`.

    With the neighbours N(v) of a node v of any type, itself included, for each head; heads stand side by side:

        out(v) = activation( sum_{u in N(v)} alpha(u, v) W x_u + b )
        alpha(u, v) = softmax over u of LeakyReLU( a . W x_u + a' . W x_v )
    """

    def __init__(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.dtype = jnp.dtype(config.dtype)
        self.projection = FeatureProjection(["z"], config.hidden, config.hidden, rngs=rngs)
        self.attention = AttentionAggregation(
            [NAME],
            config.heads,
            config.hidden // config.heads,
            negative_slope=config.negative_slope,
            dropout_rate=config.attention_dropout,
            rngs=rngs,
        )
        self.add_fusion(layer, config, spec, rngs=rngs)

    def aggregate(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> jax.Array:
        """FP and NA, `[num_rows, hidden]`."""
        graph = block.graphs[NAME]
        with stage("FP", self.layer):
            stack = self.projection.stack()
            columns = self.attention.logit_columns(stack, {NAME: 0}, {NAME: 0})
            x = dense_rows(rows[NAME])
            projected = project_together(x, ["z"], stack, [columns], sparse_implementation="segment", dtype=self.dtype)
        return self.attention(
            graph,
            projected["z"],
            projected[f"{NAME}/src"],
            projected[f"{NAME}/dst"][: graph.num_targets],
            layer=self.layer,
            step_seed=step_seed,
            implementation=self.implementation,
        )


class GAT(ErasedModel):
    """GAT: each type's input rows are projected to `[rows, hidden]` first, then come layers of `GATLayer`."""

    aggregation: ClassVar[Literal["neighbor_attention"]] = "neighbor_attention"
    default_activation: ClassVar[str] = "elu"
    make_layer = GATLayer


MODEL = GAT
