"""R-GCN: the mean over each relation's neighbours, summed over relations (Schlichtkrull et al., ESWC 2018, eq. 2)."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.models.inputs import Block, GraphSpec
from jhgnn.models.relation_plan import LayerPlan
from jhgnn.models.relational import RelationalModel
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.neighbor_aggregation import mean_aggregation
from jhgnn.nn.semantic_fusion import SumFusion
from jhgnn.nn.stage import stage

SELF = "self"


class RGCNLayer(nnx.Module):
    """FP, mean NA and sum SF over one layer's relations."""

    def __init__(
        self,
        layer: int,
        plan: LayerPlan,
        in_widths: Mapping[str, int],
        config: ModelConfig,
        spec: GraphSpec,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.layer = layer
        self.plan = nnx.static(plan)
        self.implementations = nnx.static({name: spec.implementations[name] for name in plan.relations})
        self.sparse_implementation = spec.sparse_implementation
        self.dtype = jnp.dtype(config.dtype)
        projections, fusions = {}, {}
        for node_type in plan.reads:
            names = plan.out_of(node_type) + ([SELF] if config.self_loop and node_type in plan.makes else [])
            if names:
                projections[node_type] = FeatureProjection(
                    names, in_widths[node_type], config.hidden, bases=config.bases, blocks=config.blocks, rngs=rngs
                )
        for node_type in plan.makes:
            activation = config.activation if config.activation != "auto" else "relu"
            fusions[node_type] = SumFusion(
                config.hidden, activation=activation, layer_norm=config.layer_norm, rngs=rngs
            )
        self.projections, self.fusions = nnx.Dict(projections), nnx.Dict(fusions)
        self.residual = nnx.static(set(plan.makes) if config.residual and layer > 0 else set())

    def __call__(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> dict[str, jax.Array]:
        z: dict[str, dict[str, jax.Array]] = {}
        for node_type, projection in self.projections.items():
            if node_type not in rows:
                continue
            with stage("FP", self.layer, node_type):
                z[node_type] = project_together(
                    rows[node_type],
                    projection.weights(),
                    sparse_implementation=self.sparse_implementation,
                    dtype=self.dtype,
                )
        made = {}
        for node_type in self.plan.makes:
            num_rows = block.num_rows.get(node_type, 0)
            if not num_rows:
                continue
            parts = [
                mean_aggregation(
                    block.graphs[name],
                    z[self.plan.relations[name].source][name],
                    layer=self.layer,
                    implementation=self.implementations[name],
                )
                for name in self.plan.into(node_type)
                if name in block.graphs
            ]
            with stage("SF", self.layer, node_type):
                parts += [z[node_type][SELF][:num_rows]] if SELF in z.get(node_type, {}) else []
                made[node_type] = self.fusions[node_type](parts, num_rows)
                if node_type in self.residual:
                    made[node_type] = made[node_type] + dense_rows(rows[node_type])[:num_rows]
        return made


class RGCN(RelationalModel):
    """R-GCN for node classification."""

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(RGCNLayer, config, spec, reads_targets=config.self_loop or config.residual, rngs=rngs)
