"""GCN on the graph with its types erased (Kipf and Welling, ICLR 2017).

It is a control: a heterogeneous model should score higher than one that does not know the types.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.erased import NAME
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.nn.block import Block
from jhgnn.nn.erased import ErasedLayer, ErasedModel
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.neighbor_aggregation import mean_aggregation
from jhgnn.nn.stage import stage
from jhgnn.ops.segment import in_degrees


class GCNLayer(ErasedLayer):
    r"""One layer (eq. 2): rows `[num_nodes, hidden]` to `[num_rows, hidden]`.

    With the neighbours N(v) of a node v of any type, itself included, and its degree d(v) = |N(v)|:

        out(v) = activation( sum_{u in N(v)} W x_u / sqrt(d(u) d(v)) + b )

    In a mini-batch d is the degree in the whole graph, and d(v) times the mean over the neighbours that were drawn
    stands for the sum over all.
    """

    def __init__(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.dtype = jnp.dtype(config.dtype)
        self.projection = FeatureProjection(["z"], config.hidden, config.hidden, rngs=rngs)
        self.add_fusion(layer, config, spec, rngs=rngs)

    def aggregate(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> jax.Array:
        """FP and NA, `[num_rows, hidden]`."""
        graph = block.graphs[NAME]
        with stage("FP", self.layer):
            stack = self.projection.stack()
            x = dense_rows(rows[NAME])
            z = project_together(x, ["z"], stack, sparse_implementation="segment", dtype=self.dtype)["z"]
        # The graph is undirected with self-loops, so D^-1/2 A D^-1/2 z = D^1/2 mean(D^-1/2 z), and D >= 1. Sampled
        # neighbours have the same mean in expectation.
        if block.degrees is None:
            assert isinstance(graph, SemanticGraph)
            root = jnp.sqrt(in_degrees(graph).astype(jnp.float32))[:, None].astype(z.dtype)
        else:  # of a slot without a node it is 0
            root = jnp.sqrt(jnp.maximum(block.degrees[: z.shape[0]], 1.0)).astype(z.dtype)
        aggregated = mean_aggregation(graph, z / root, layer=self.layer, implementation=self.implementation)
        return aggregated * root[: graph.num_targets]


class GCN(ErasedModel):
    """GCN: each type's input rows are projected to `[rows, hidden]` first, then come layers of `GCNLayer`."""

    make_layer = GCNLayer


MODEL = GCN
