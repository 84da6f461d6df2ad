"""Model: what every model says of itself, and how it runs its layers."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.errors import InputError
from jhgnn.nn import recompute
from jhgnn.nn.block import Block
from jhgnn.nn.dropout import drop_rows, site_seed
from jhgnn.nn.embeddings import InputEmbeddings
from jhgnn.nn.feature_projection import Rows, dense_rows
from jhgnn.nn.inputs import GraphSpec, ModelInputs
from jhgnn.nn.layer import Layer
from jhgnn.nn.reduction import Partial, Reduce, alone
from jhgnn.nn.reuse import with_reused
from jhgnn.nn.sparse_dropout import drop_features
from jhgnn.nn.stage import stage


class Model(nnx.Module):
    """Layers that turn the rows of node types into rows of the target types; a task adds its head to it.

    The class attributes say what a model is before one is built, and the rest of the package asks no model's name:
    a model of your own is a subclass with the attributes that differ, and a constructor that sets `embeddings` and
    `layers`.
    """

    over: ClassVar[Literal["relations", "metapaths", "erased"]] = "relations"
    """What is aggregated over: the relations, metapaths from the target type to itself, or all edges as one."""
    aggregation: ClassVar[Literal["neighbor_attention", "neighbor_mean"]] = "neighbor_mean"
    """The op of neighbor aggregation, which decides what kernels are chosen for."""
    default_layers: ClassVar[int] = 2
    default_activation: ClassVar[str] = "relu"
    fuses_over_targets: ClassVar[bool] = False
    """Whether the fusion depends on all targets of a batch at once, as HAN's does, and not on each row alone."""
    decomposes: ClassVar[bool] = False
    """Whether `model.bases` and `model.blocks` decompose its weights."""
    weighs_edges: ClassVar[bool] = False
    """Whether its whole-graph layers take a weight for each edge, by which link prediction leaves edges out."""

    means_of_inputs: ClassVar[bool] = False
    """Whether the first layer sees neighbours through the mean of their input rows alone, as R-GCN's does, so that a
    mean may be taken before training (`sampling.hot`)."""

    reuses_parts: ClassVar[bool] = False
    """What is reused of a vertex (`sampling.hot`): the result of each semantic graph, side by side, which `aggregate`
    takes over from `Block.reused`; else their sum. Where `fuses_over_targets`, nothing else can be reused."""

    reads_edge_features: ClassVar[bool] = False
    """Whether its layers read `Block.edge_features` (`model.edge_features`)."""

    reads_packed: ClassVar[bool] = False
    """Whether its layers read `Block.packed`, all semantic graphs as one."""

    reads_one_hot_slots: ClassVar[bool] = False
    """Whether packed layers with bases read one-hot rows by `OneHotSlots`, as groups' features."""

    embeddings: InputEmbeddings
    layers: Sequence[Layer]

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        """Sets what all models have; in `config`, 0 layers and the activation `auto` mean the model's own defaults."""
        self.num_nodes = nnx.static(dict(spec.num_nodes))
        self.targets = nnx.static(tuple(spec.targets))
        self.feature_dropout, self.dropout = config.feature_dropout, config.dropout

    @classmethod
    def settled(cls, config: ModelConfig) -> ModelConfig:
        """The config with this model's own depth and activation where it leaves them open.

        Raises:
            InputError: settings that this model does not have, or that do not fit each other.
        """
        cls._check(config)
        activation = cls.default_activation if config.activation == "auto" else config.activation
        layers = config.layers or cls.default_layers
        return dataclasses.replace(config, layers=layers, activation=activation)  # type: ignore[arg-type]

    @classmethod
    def packs(cls, config: ModelConfig) -> bool:
        """Whether its layers read `Block.packed` with these settings."""
        return cls.reads_packed

    @classmethod
    def attends(cls) -> bool:
        """Whether edges have logits, of which a softmax gives their weights."""
        return cls.aggregation == "neighbor_attention"

    @classmethod
    def reads_receivers(cls, config: ModelConfig) -> bool:
        """Whether a layer reads the receivers' own rows: for a self-loop, a residual, or attention."""
        return config.self_loop or config.residual or cls.attends()

    @classmethod
    def _check(cls, config: ModelConfig) -> None:
        if cls.attends() and config.hidden % config.heads:
            raise InputError(
                f"model.hidden = {config.hidden} is not a multiple of model.heads = {config.heads}; each head is"
                " hidden / heads wide"
            )
        if (config.bases or config.blocks) and not cls.decomposes:
            raise InputError(f"model.bases and model.blocks decompose R-GCN's weights, not those of {config.name!r}")
        if config.edge_features and not cls.reads_edge_features:
            raise InputError(
                f"model.edge_features are read by 'rgcn' and 'rgat', not by {config.name!r}; leave them out"
            )
        if config.metapaths and cls.over != "metapaths":
            raise InputError(f"model.metapaths are HAN's; {config.name!r} aggregates over {cls.over}: leave them out")

    @classmethod
    def projects_after_attention(cls, config: ModelConfig) -> bool:
        """Whether its layers can weight rows before they are projected (`jhgnn.ops.row_attention`)."""
        return False

    def encode(
        self, inputs: ModelInputs, step_seed: jax.Array | None = None, reduce: Reduce = alone
    ) -> dict[str, jax.Array]:
        """The last layer's rows of each target type, `[rows, hidden]`.

        Args:
            inputs: a whole graph, a receptive field, or a mini-batch.
            step_seed: uint32 scalar of this step's dropout; None: no dropout.
            reduce: who adds up what layers sum over targets or relations.
        """
        rows = self._run(len(self.layers), inputs, step_seed, reduce)
        return {node_type: dense_rows(rows[node_type]) for node_type in self.targets if node_type in rows}

    def partial_sums(
        self, inputs: ModelInputs, step_seed: jax.Array | None = None, known: Sequence[Any] = ()
    ) -> Partial:
        """The partial sums of layer number `len(known)`; `known` are the sums over everything of the layers before."""

        def reduce(partial: Partial) -> Any:
            return known[partial.layer]

        index = len(known)
        block = self._block(inputs, index)
        rows = inputs.rows_read(self._run(index, inputs, step_seed, reduce))

        def sums() -> Partial:
            layer = self.layers[index]
            return layer.partial(layer.aggregate(self._dropped(rows, index, block, step_seed), block, step_seed), block)

        return recompute.layer(sums)

    def of_neighbors(self, inputs: ModelInputs, step_seed: jax.Array | None = None) -> dict[str, jax.Array]:
        """What the first layer makes of neighbours, to be reused by other batches: `[num_rows, width]` by type."""
        block, layer = self._block(inputs, 0), self.layers[0]
        rows = inputs.rows_read(self._read(inputs, step_seed))
        return recompute.layer(lambda: layer.of_neighbors(self._dropped(rows, 0, block, step_seed), block, step_seed))

    def _read(self, inputs: ModelInputs, step_seed: jax.Array | None) -> dict[str, Rows]:
        """The rows that the first layer reads."""
        return self.embeddings(inputs)

    def _block(self, inputs: ModelInputs, index: int) -> Block:
        return inputs.block(len(self.layers) - 1 - index, self.num_nodes)

    def _run(
        self, num_layers: int, inputs: ModelInputs, step_seed: jax.Array | None, reduce: Reduce
    ) -> dict[str, Rows]:
        rows = self._read(inputs, step_seed)
        for index in range(num_layers):
            block, rows = self._block(inputs, index), dict(inputs.rows_read(rows))
            rows = dict(recompute.layer(functools.partial(self._layer, index, rows, block, step_seed, reduce)))
        return rows

    def _layer(
        self, index: int, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None, reduce: Reduce
    ) -> dict[str, jax.Array]:
        dropped = self._dropped(rows, index, block, step_seed)
        sums_reused = block.reused and not self.reuses_parts
        return self.layers[index](
            dropped, block, step_seed, with_reused(block.reused, reduce) if sums_reused else reduce
        )

    def _dropped(
        self, rows: Mapping[str, Rows], index: int, block: Block, step_seed: jax.Array | None
    ) -> Mapping[str, Rows]:
        if step_seed is None:
            return rows
        return {name: self._dropped_rows(x, name, index, block, step_seed) for name, x in rows.items()}

    def _dropped_rows(self, x: Rows, node_type: str, index: int, block: Block, step_seed: jax.Array) -> Rows:
        ids = block.ids.get(node_type)
        with stage("FP", index, node_type):
            if index == 0:
                return drop_features(x, site_seed(step_seed, f"input/{node_type}"), self.feature_dropout, ids)
            return drop_rows(dense_rows(x), site_seed(step_seed, f"layer{index}/{node_type}"), self.dropout, ids)
