"""Layers whose fusion is a sum over relations: R-GCN's and R-GAT's."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.nn.block import Block
from jhgnn.nn.feature_projection import Rows, dense_rows
from jhgnn.nn.layer import Layer
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.reduction import Partial
from jhgnn.nn.semantic_fusion import SumFusion
from jhgnn.nn.stage import stage


class RelationParts(NamedTuple):
    """What a layer made before fusion: each type's results, one a relation, and its self-loop's where it has one."""

    parts: dict[str, list[jax.Array]]
    own: dict[str, jax.Array]


class SumOverRelations(Layer):
    """The fusion half of a layer over relations; a subclass adds `aggregate`, which gives `RelationParts`."""

    def add_fusions(self, layer: int, plan: LayerPlan, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        """Sets what the fusion needs; a subclass calls it in its constructor, with a settled config."""
        self.layer, self.plan = layer, nnx.static(plan)
        self.fusions = nnx.Dict(
            {
                node_type: SumFusion(
                    config.hidden, activation=config.activation, layer_norm=config.layer_norm, rngs=rngs
                )
                for node_type in plan.makes
            }
        )
        self.residual = nnx.static(set(plan.makes) if config.residual and layer > 0 else set())

    def made(self, block: Block) -> Iterator[str]:
        """The types of which rows are asked for."""
        return (node_type for node_type in self.plan.makes if block.num_rows.get(node_type, 0))

    def partial(self, parts: RelationParts, block: Block) -> Partial:
        """Each type's sum over the relations at hand."""
        totals = {}
        for node_type in self.made(block):
            with stage("SF", self.layer, node_type):
                totals[node_type] = self.fusions[node_type].partial(parts.parts[node_type], block.num_rows[node_type])
        return Partial(totals, "relations", self.layer)

    def fuse(
        self, rows: Mapping[str, Rows], parts: RelationParts, block: Block, sums: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Self-loop, bias, norm, activation and residual, from the sums over all relations."""
        made = {}
        for node_type in self.made(block):
            with stage("SF", self.layer, node_type):
                made[node_type] = self.fusions[node_type].finish(sums[node_type], parts.own.get(node_type))
                if node_type in self.residual:
                    own = dense_rows(rows[node_type])[: block.num_rows[node_type]]
                    made[node_type] = made[node_type] + own
        return made
