"""HAN: attention along metapath graphs, then attention over metapaths (Wang et al., WWW 2019)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.models.classifier import Classifier, InputEmbeddings, ModelOutput
from jhgnn.models.inputs import Block, GraphInputs, GraphSpec, SampledInputs
from jhgnn.nn import recompute
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.feature_projection import Columns, FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.neighbor_aggregation import AttentionAggregation, logits_follow
from jhgnn.nn.semantic_fusion import ACTIVATIONS, AttentionFusion
from jhgnn.nn.sparse_dropout import drop_features
from jhgnn.nn.stage import stage


class HANLayer(nnx.Module):
    """FP, NA and SF over the metapaths of one node type: rows `[num_nodes, in_width]` to `[num_rows, hidden]`.

    In a mini-batch the semantic attention is the mean over the batch's targets in every layer, so it equals the
    full-batch one where the batch holds all of them, and does not depend on how many devices share the batch.
    """

    def __init__(self, layer: int, in_width: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.layer, self.target = layer, spec.target
        self.metapaths = spec.metapaths
        self.shared_projection = config.shared_projection
        spaces = ("shared",) if config.shared_projection else spec.metapaths
        self.projection = FeatureProjection(spaces, in_width, config.hidden, rngs=rngs)
        self.attention = AttentionAggregation(
            spec.metapaths,
            config.heads,
            config.hidden // config.heads,
            negative_slope=config.negative_slope,
            dropout_rate=config.attention_dropout,
            rngs=rngs,
        )
        self.projection_bias = config.projection_bias
        biased = spaces if config.projection_bias else spec.metapaths
        self.bias_po = nnx.Param(jnp.zeros((len(biased), config.hidden)))
        self.fusion = AttentionFusion(config.hidden, config.semantic_hidden, rngs=rngs)
        self.norm = nnx.LayerNorm(config.hidden, rngs=rngs) if config.layer_norm else None
        self.residual = config.residual and layer > 0
        self.activation = config.activation if config.activation != "auto" else "elu"
        self.implementations = nnx.static(tuple(spec.implementations[name] for name in spec.metapaths))
        self.sparse_implementation = spec.sparse_implementation
        self.dtype = jnp.dtype(config.dtype)

    def __call__(
        self,
        x: Rows,
        block: Block,
        step_seed: jax.Array | None,
        targets: jax.Array | None = None,
        axis: str | None = None,
        means: jax.Array | None = None,
    ) -> jax.Array:
        num_rows = block.num_rows[self.target]
        parts = self.along_metapaths(x, block, step_seed)
        with stage("SF", self.layer):
            fused = self.fusion(parts, targets, axis, means)
            if self.norm is not None:
                fused = self.norm(fused)
            return fused + dense_rows(x)[:num_rows] if self.residual else fused

    def along_metapaths(self, x: Rows, block: Block, step_seed: jax.Array | None) -> list[jax.Array]:
        """FP and NA: `[num_rows, hidden]` of each metapath."""
        num_rows = block.num_rows[self.target]
        with stage("FP", self.layer):
            stack, follow = self.projection.stack(), logits_follow(x, self.dtype)
            projected = project_together(
                x,
                [f"{space}/z" for space in self.projection.names],
                stack,
                [] if follow else [self._logit_columns(stack)],
                sparse_implementation=self.sparse_implementation,
                dtype=self.dtype,
            )
            if self.projection_bias:
                projected = self._add_bias(projected)
            if follow:
                for space in self.projection.names:
                    of_space = self.metapaths if self.shared_projection else (space,)
                    projected |= self.attention.logits(projected[f"{space}/z"], of_space, of_space)
        parts = []
        for index, name in enumerate(self.metapaths):
            aggregated = self.attention(
                block.graphs[name],
                projected[f"{'shared' if self.shared_projection else name}/z"],
                projected[f"{name}/src"],
                projected[f"{name}/dst"][:num_rows],
                layer=self.layer,
                step_seed=step_seed,
                implementation=self.implementations[index],
            )
            with stage("NA", self.layer, name):
                if not self.projection_bias:
                    aggregated = aggregated + self.bias_po[index][None, :].astype(aggregated.dtype)
                parts.append(ACTIVATIONS[self.activation](aggregated))
        return parts

    def _add_bias(self, projected: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Biased projections, and where there are logits, those of biased projections."""
        rows = self.bias_po[...][:, None, :]
        biases = {f"{space}/z": row for space, row in zip(self.projection.names, rows, strict=True)}
        if len(projected) > len(biases):
            names, columns = self._logit_columns(rows)
            biases |= dict(zip(names, jnp.split(columns, len(names), axis=1), strict=True))
        return {name: part + biases[name].astype(part.dtype) for name, part in projected.items()}

    def _logit_columns(self, stack: jax.Array) -> Columns:
        places = {name: 0 if self.shared_projection else place for place, name in enumerate(self.metapaths)}
        return self.attention.logit_columns(stack, places, places)


class HAN(nnx.Module):
    """Embeds the target type along its metapaths and classifies it."""

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        self.target, self.num_nodes = spec.target, nnx.static(dict(spec.num_nodes))
        self.feature_dropout, self.dropout = config.feature_dropout, config.dropout
        self.embeddings = InputEmbeddings([spec.target], spec, config.hidden, rngs=rngs)
        width = self.embeddings.widths[spec.target]
        layers = []
        for layer in range(config.layers or 1):
            layers.append(HANLayer(layer, width, config, spec, rngs=rngs))
            width = config.hidden
        self.layers = nnx.List(layers)
        self.classifier = Classifier(config.hidden, spec.num_classes, rngs=rngs)

    def __call__(
        self, inputs: GraphInputs | SampledInputs, step_seed: jax.Array | None = None, means: Sequence[jax.Array] = ()
    ) -> ModelOutput:
        """Logits and embeddings of all targets, or of a mini-batch's; dropout is on where a uint32 seed is given.

        `means` are those of each layer's semantic attention, where the batch is a part of the one they are over.
        """
        return self.classifier(dense_rows(self._run(len(self.layers), inputs, step_seed, means)))

    def semantic_sums(
        self, inputs: GraphInputs | SampledInputs, step_seed: jax.Array | None, means: Sequence[jax.Array]
    ) -> jax.Array:
        """What layer number `len(means)` sums over targets for its attention, `[metapaths, semantic_hidden]`."""
        index = len(means)
        block, x = self._block(inputs, index), self._run(index, inputs, step_seed, means)
        targets = inputs.targets(self.target)
        assert targets is not None

        def sums() -> jax.Array:
            parts = self.layers[index].along_metapaths(self._dropped(x, index, block, step_seed), block, step_seed)
            with stage("SF", index):
                return self.layers[index].fusion.sums(parts, targets)

        return recompute.layer(sums)

    def _run(
        self,
        num_layers: int,
        inputs: GraphInputs | SampledInputs,
        step_seed: jax.Array | None,
        means: Sequence[jax.Array],
    ) -> Rows:
        """The rows that the first layers make."""
        x = self.embeddings(inputs)[self.target]
        targets = inputs.targets(self.target)
        for index in range(num_layers):
            block = self._block(inputs, index)

            def run(x: Rows = x, index: int = index, block: Block = block) -> jax.Array:
                dropped, given = self._dropped(x, index, block, step_seed), means[index] if means else None
                return self.layers[index](dropped, block, step_seed, targets, inputs.axis, given)

            x = recompute.layer(run)
        return x

    def _block(self, inputs: GraphInputs | SampledInputs, index: int) -> Block:
        return inputs.block(len(self.layers) - 1 - index, self.num_nodes)

    def _dropped(self, x: Rows, index: int, block: Block, step_seed: jax.Array | None) -> Rows:
        if step_seed is None:
            return x
        ids = block.ids.get(self.target)
        with stage("FP", index):
            if index == 0:
                return drop_features(x, site_seed(step_seed, f"input/{self.target}"), self.feature_dropout, ids)
            return drop_rows(dense_rows(x), site_seed(step_seed, f"layer{index}/{self.target}"), self.dropout, ids)
