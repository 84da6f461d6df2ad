"""A model without layers, the baseline that passes no messages: what it makes of a node is the node's input row."""

from typing import ClassVar

from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.nn.embeddings import InputEmbeddings
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.model import Model


class NoLayers(Model):
    """Learnable embeddings, or features, of the target types alone."""

    default_layers: ClassVar[int] = 0
    weighs_edges: ClassVar[bool] = True

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, spec, rngs=rngs)
        self.embeddings = InputEmbeddings(spec.targets, spec, config.hidden, rngs=rngs)
        self.layers = nnx.List([])

    @classmethod
    def _check(cls, config: ModelConfig) -> None:
        """Nothing of a model's settings matters."""
