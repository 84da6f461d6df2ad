"""What GCN and GAT share: the graph with its types erased, the controls that heterogeneous models have to beat.

Each type's features are projected to a common width first, as the Heterogeneous Graph Benchmark does for them.
"""

import functools
from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.erased import NAME, type_offsets
from jhgnn.nn.block import Block
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.embeddings import InputEmbeddings
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec, ModelInputs, SampledInputs
from jhgnn.nn.layer import Layer
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.model import Model
from jhgnn.nn.reduction import Partial, Reduce, alone
from jhgnn.nn.semantic_fusion import SumFusion
from jhgnn.nn.sparse_dropout import drop_features
from jhgnn.nn.stage import stage


class ErasedLayer(Layer):
    """A layer on the erased graph, `[nodes, hidden]` to `[nodes, hidden]`, without its aggregation.

    It has the fusion (bias, activation); a subclass adds `aggregate`.
    """

    def add_fusion(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        """Sets what the fusion needs; a subclass calls it in its constructor, with a settled config."""
        self.layer, self.implementation = layer, spec.implementations[NAME]
        self.plan = nnx.static(LayerPlan(dict(spec.relations), (NAME,), (NAME,)))
        self.fusion = SumFusion(config.hidden, activation=config.activation, layer_norm=config.layer_norm, rngs=rngs)
        self.residual = config.residual and layer > 0

    def partial(self, parts: jax.Array, block: Block) -> Partial:
        """The only relation's sum."""
        with stage("SF", self.layer):
            return Partial(self.fusion.partial([parts], parts.shape[0]), "relations", self.layer)

    def fuse(self, rows: Mapping[str, Rows], parts: jax.Array, block: Block, sums: jax.Array) -> dict[str, jax.Array]:
        """Bias, norm, activation and residual."""
        with stage("SF", self.layer):
            out = self.fusion.finish(sums)
        return {NAME: out + dense_rows(rows[NAME])[: out.shape[0]] if self.residual else out}


class ErasedLayerFactory(Protocol):
    """Builds one layer."""

    def __call__(self, layer: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> ErasedLayer: ...


class ErasedModel(Model):
    """Input projections by type, then layers on the erased graph; a subclass names their kind in `make_layer`."""

    over: ClassVar[Literal["erased"]] = "erased"
    make_layer: ClassVar[ErasedLayerFactory]

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, spec, rngs=rngs)
        config = self.settled(config)
        self.offsets = nnx.static(type_offsets(dict(spec.num_nodes)))
        self.sparse_implementation = spec.sparse_implementation
        self.dtype = jnp.dtype(config.dtype)
        self.embeddings = InputEmbeddings(spec.num_nodes, spec, config.hidden, rngs=rngs)
        self.projections = nnx.Dict(
            {
                node_type: FeatureProjection(["x"], self.embeddings.widths[node_type], config.hidden, rngs=rngs)
                for node_type in spec.num_nodes
            }
        )
        self.layers = nnx.List(
            [type(self).make_layer(layer, config, spec, rngs=rngs) for layer in range(config.layers)]
        )

    def encode(
        self, inputs: ModelInputs, step_seed: jax.Array | None = None, reduce: Reduce = alone
    ) -> dict[str, jax.Array]:
        """See `Model.encode`."""
        x = dense_rows(self._run(len(self.layers), inputs, step_seed, reduce)[NAME])
        if isinstance(inputs, SampledInputs):  # the seeds, all of one type, stand first
            return {self.targets[0]: x}
        return {name: x[self.offsets[name] : self.offsets[name] + self.num_nodes[name]] for name in self.targets}

    def _block(self, inputs: ModelInputs, index: int) -> Block:
        return inputs.block(len(self.layers) - 1 - index, {NAME: sum(self.num_nodes.values())})

    def _read(self, inputs: ModelInputs, step_seed: jax.Array | None) -> dict[str, Rows]:
        """The projected input rows of all nodes, `[nodes, hidden]`, type after type; or of a mini-batch's slots.

        A mini-batch's slots hold nodes of any type. Each type gives a row for each slot, of zeros where the slot holds
        a node of another type. Projections have no bias, so zeros stay zeros, and the sum over types is the row of the
        slot's own node.
        """
        rows, projected = self.embeddings(inputs), []
        for node_type in self.num_nodes:
            if node_type not in rows:
                continue
            x = rows[node_type]
            if step_seed is not None:
                ids = inputs.ids(node_type) if isinstance(inputs, SampledInputs) else None
                with stage("FP", part=node_type):
                    x = drop_features(x, site_seed(step_seed, f"input/{node_type}"), self.feature_dropout, ids)
            projected.append(self.project(x, node_type))
        if isinstance(inputs, SampledInputs):
            return {NAME: functools.reduce(jnp.add, projected)}
        return {NAME: jnp.concatenate(projected)}

    def project(self, x: Rows, node_type: str) -> jax.Array:
        """A type's input rows in the common width, `[rows, hidden]`."""
        with stage("FP", part=node_type):
            stack = self.projections[node_type].stack()
            joined = project_together(
                x, ["x"], stack, sparse_implementation=self.sparse_implementation, dtype=self.dtype
            )
            return joined["x"]

    def _dropped_rows(self, x: Rows, node_type: str, index: int, block: Block, step_seed: jax.Array) -> Rows:
        """The input of a layer after dropout; the dropout of input features comes before it, in `_read`."""
        with stage("FP", index):
            seed = site_seed(step_seed, f"layer{index}/{NAME}")
            return drop_rows(dense_rows(x), seed, self.dropout, block.ids.get(node_type))
