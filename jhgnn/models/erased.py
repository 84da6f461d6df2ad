"""GCN and GAT on the graph with its types erased: the controls that heterogeneous models have to beat.

Each type's features are projected to a common width first, as the Heterogeneous Graph Benchmark does for them.
"""

import functools
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.erased import NAME, type_offsets
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.models.classifier import Classifier, InputEmbeddings, ModelOutput
from jhgnn.models.inputs import GraphInputs, GraphSpec
from jhgnn.nn import recompute
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.feature_projection import FeatureProjection, project_together
from jhgnn.nn.neighbor_aggregation import AttentionAggregation, mean_aggregation
from jhgnn.nn.semantic_fusion import SumFusion
from jhgnn.nn.sparse_dropout import drop_features
from jhgnn.nn.stage import stage
from jhgnn.ops.segment import in_degrees

DEFAULT_LAYERS = 2


class ErasedLayer(Protocol):
    """One layer on the erased graph, `[nodes, hidden]` to `[nodes, hidden]`."""

    def __call__(self, x: jax.Array, graph: SemanticGraph, step_seed: jax.Array | None) -> jax.Array: ...


class GCNLayer(nnx.Module):
    """Symmetrically normalised sum over neighbours (Kipf and Welling, ICLR 2017, eq. 2)."""

    def __init__(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.layer, self.implementation = layer, spec.implementations[NAME]
        self.dtype = jnp.dtype(config.dtype)
        self.projection = FeatureProjection(["z"], config.hidden, config.hidden, rngs=rngs)
        activation = config.activation if config.activation != "auto" else "relu"
        self.fusion = SumFusion(config.hidden, activation=activation, layer_norm=config.layer_norm, rngs=rngs)

    def __call__(self, x: jax.Array, graph: SemanticGraph, step_seed: jax.Array | None) -> jax.Array:
        with stage("FP", self.layer):
            stack = self.projection.stack()
            z = project_together(x, ["z"], stack, sparse_implementation="segment", dtype=self.dtype)["z"]
        # The graph is undirected with self-loops, so D^-1/2 A D^-1/2 z = D^1/2 mean(D^-1/2 z), and D >= 1.
        root = jnp.sqrt(in_degrees(graph).astype(jnp.float32))[:, None].astype(z.dtype)
        aggregated = mean_aggregation(graph, z / root, layer=self.layer, implementation=self.implementation)
        with stage("SF", self.layer):
            return self.fusion([aggregated * root], graph.num_targets)


class GATLayer(nnx.Module):
    """Graph attention (Velickovic et al., ICLR 2018)."""

    def __init__(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.layer, self.implementation = layer, spec.implementations[NAME]
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
        activation = config.activation if config.activation != "auto" else "elu"
        self.fusion = SumFusion(config.hidden, activation=activation, layer_norm=config.layer_norm, rngs=rngs)

    def __call__(self, x: jax.Array, graph: SemanticGraph, step_seed: jax.Array | None) -> jax.Array:
        with stage("FP", self.layer):
            stack = self.projection.stack()
            columns = self.attention.logit_columns(stack, {NAME: 0}, {NAME: 0})
            projected = project_together(x, ["z"], stack, [columns], sparse_implementation="segment", dtype=self.dtype)
        aggregated = self.attention(
            graph,
            projected["z"],
            projected[f"{NAME}/src"],
            projected[f"{NAME}/dst"],
            layer=self.layer,
            step_seed=step_seed,
            implementation=self.implementation,
        )
        with stage("SF", self.layer):
            return self.fusion([aggregated], graph.num_targets)


class ErasedModel(nnx.Module):
    """Input projections by type, then layers on the erased graph, then a classifier on the target type's nodes."""

    def __init__(
        self, make_layer: Callable[..., ErasedLayer], config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs
    ) -> None:
        self.node_types = tuple(spec.num_nodes)
        self.first_target = type_offsets(dict(spec.num_nodes))[spec.target]
        self.num_targets = spec.num_nodes[spec.target]
        self.feature_dropout, self.dropout, self.residual = config.feature_dropout, config.dropout, config.residual
        self.sparse_implementation = spec.sparse_implementation
        self.dtype = jnp.dtype(config.dtype)
        self.embeddings = InputEmbeddings(spec.num_nodes, spec, config.hidden, rngs=rngs)
        self.projections = nnx.Dict(
            {
                node_type: FeatureProjection(["x"], self.embeddings.widths[node_type], config.hidden, rngs=rngs)
                for node_type in self.node_types
            }
        )
        num_layers = config.layers or DEFAULT_LAYERS
        self.layers = nnx.List([make_layer(layer, config, spec, rngs=rngs) for layer in range(num_layers)])
        self.classifier = Classifier(config.hidden, spec.num_classes, rngs=rngs)

    def __call__(self, inputs: GraphInputs, step_seed: jax.Array | None = None) -> ModelOutput:
        """Logits and embeddings of all targets; dropout is on where a uint32 `step_seed` is given."""
        rows, projected = self.embeddings(inputs), []
        for node_type in self.node_types:
            x = rows[node_type]
            with stage("FP", part=node_type):
                if step_seed is not None:
                    x = drop_features(x, site_seed(step_seed, f"input/{node_type}"), self.feature_dropout)
                stack = self.projections[node_type].stack()
                joined = project_together(
                    x, ["x"], stack, sparse_implementation=self.sparse_implementation, dtype=self.dtype
                )
                projected.append(joined["x"])
        x = jnp.concatenate(projected)
        for index, layer in enumerate(self.layers):
            x = recompute.layer(functools.partial(self._layer, index, layer, x, inputs.graphs[NAME], step_seed))
        return self.classifier(x[self.first_target : self.first_target + self.num_targets])

    def _layer(
        self, index: int, layer: ErasedLayer, x: jax.Array, graph: SemanticGraph, step_seed: jax.Array | None
    ) -> jax.Array:
        if step_seed is not None:
            with stage("FP", index):
                x = drop_rows(x, site_seed(step_seed, f"layer{index}/{NAME}"), self.dropout)
        out = layer(x, graph, step_seed)
        return out + x if self.residual and index else out


class GCN(ErasedModel):
    """GCN on the graph with its types erased."""

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(GCNLayer, config, spec, rngs=rngs)


class GAT(ErasedModel):
    """GAT on the graph with its types erased."""

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(GATLayer, config, spec, rngs=rngs)
