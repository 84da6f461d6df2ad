"""What R-GCN and R-GAT share: layers over relations that compute only what a later layer reads."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.errors import InputError
from jhgnn.nn.embeddings import InputEmbeddings
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.layer import Layer
from jhgnn.nn.layer_plan import LayerPlan, plan_layers
from jhgnn.nn.model import Model

SELF = "self"
"""The name of a node's own projection among those of its type's relations."""


class LayerFactory(Protocol):
    """Builds one layer for the widths of the types that it reads; a `Layer` class with this constructor is one."""

    def __call__(
        self,
        layer: int,
        plan: LayerPlan,
        in_widths: Mapping[str, int],
        config: ModelConfig,
        spec: GraphSpec,
        *,
        rngs: nnx.Rngs,
    ) -> Layer: ...


class RelationalModel(Model):
    """Layers of one kind over relations; a subclass names the kind in `make_layer`."""

    make_layer: ClassVar[LayerFactory]

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, spec, rngs=rngs)
        config = self.settled(config)
        if config.edge_features and not spec.edge_widths:
            raise InputError(
                "model.edge_features: what the model is built for has no features of edges; leave them out"
            )
        plans = plan_layers(spec.relations, spec.targets, config.layers, self.reads_receivers(config))
        self.embeddings = InputEmbeddings(plans[0].reads, spec, config.hidden, rngs=rngs)
        widths: Mapping[str, int] = self.embeddings.widths
        layers = []
        for index, plan in enumerate(plans):
            layers.append(type(self).make_layer(index, plan, widths, config, spec, rngs=rngs))
            widths = dict.fromkeys(plan.makes, config.hidden)
        self.layers = nnx.List(layers)
