"""The stack that R-GCN and R-GAT share: layers over relations with dropout between them; a classifier on the target."""

from collections.abc import Collection, Mapping
from typing import Protocol

import jax
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.models.classifier import Classifier, InputEmbeddings, ModelOutput
from jhgnn.models.inputs import Block, GraphSpec, ModelInputs
from jhgnn.models.relation_plan import LayerPlan, plan_layers
from jhgnn.nn import recompute
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.feature_projection import Rows, dense_rows
from jhgnn.nn.sparse_dropout import drop_features
from jhgnn.nn.stage import stage

DEFAULT_LAYERS = 3  # Table 2 of the characterization paper


class RelationalLayer(Protocol):
    """One layer over relations: rows of each type it reads to `[num_rows, hidden]` of each type it makes."""

    def __call__(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> dict[str, jax.Array]: ...


class LayerFactory(Protocol):
    """Builds one layer for the widths of the types that it reads."""

    def __call__(
        self,
        layer: int,
        plan: LayerPlan,
        in_widths: Mapping[str, int],
        config: ModelConfig,
        spec: GraphSpec,
        *,
        rngs: nnx.Rngs,
    ) -> RelationalLayer: ...


class RelationalEncoder(nnx.Module):
    """Layers over relations; a layer computes only the types that a later one reads."""

    def __init__(
        self,
        make_layer: LayerFactory,
        config: ModelConfig,
        spec: GraphSpec,
        targets: Collection[str],
        *,
        reads_targets: bool,
        rngs: nnx.Rngs,
    ) -> None:
        plans = plan_layers(spec.relations, targets, config.layers or DEFAULT_LAYERS, reads_targets)
        self.num_nodes = nnx.static(dict(spec.num_nodes))
        self.feature_dropout, self.dropout = config.feature_dropout, config.dropout
        self.embeddings = InputEmbeddings(plans[0].reads, spec, config.hidden, rngs=rngs)
        widths: Mapping[str, int] = self.embeddings.widths
        layers = []
        for index, plan in enumerate(plans):
            layers.append(make_layer(index, plan, widths, config, spec, rngs=rngs))
            widths = dict.fromkeys(plan.makes, config.hidden)
        self.layers = nnx.List(layers)

    def encode(self, inputs: ModelInputs, step_seed: jax.Array | None = None) -> dict[str, Rows]:
        """The last layer's rows of each target type; dropout is on where a uint32 seed is given."""
        rows: dict[str, Rows] = self.embeddings(inputs)
        for index, layer in enumerate(self.layers):
            block = inputs.block(len(self.layers) - 1 - index, self.num_nodes)

            def run(
                rows: dict[str, Rows] = rows, index: int = index, layer: RelationalLayer = layer, block: Block = block
            ) -> dict[str, jax.Array]:
                if step_seed is not None:
                    rows = {name: self._dropped(x, name, index, block, step_seed) for name, x in rows.items()}
                return dict(layer(rows, block, step_seed))

            rows = dict(recompute.layer(run))
        return rows

    def _dropped(self, x: Rows, node_type: str, index: int, block: Block, step_seed: jax.Array) -> Rows:
        ids = block.ids.get(node_type)
        with stage("FP", index, node_type):
            if index == 0:
                return drop_features(x, site_seed(step_seed, f"input/{node_type}"), self.feature_dropout, ids)
            return drop_rows(dense_rows(x), site_seed(step_seed, f"layer{index}/{node_type}"), self.dropout, ids)


class RelationalModel(RelationalEncoder):
    """The encoder, and a classifier on the target type."""

    def __init__(
        self,
        make_layer: LayerFactory,
        config: ModelConfig,
        spec: GraphSpec,
        *,
        reads_targets: bool,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(make_layer, config, spec, [spec.target], reads_targets=reads_targets, rngs=rngs)
        self.target = spec.target
        self.classifier = Classifier(config.hidden, spec.num_classes, rngs=rngs)

    def __call__(self, inputs: ModelInputs, step_seed: jax.Array | None = None) -> ModelOutput:
        """Logits and embeddings of all targets, or of a mini-batch's; dropout is on where a uint32 seed is given."""
        return self.classifier(dense_rows(self.encode(inputs, step_seed)[self.target]))
