"""R-GAT: graph attention within each relation, summed over relations (Wang et al., ACL 2020; paper Table 2)."""

import functools
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.models.inputs import Block, GraphSpec
from jhgnn.models.relation_plan import LayerPlan
from jhgnn.models.relational import RelationalModel
from jhgnn.nn import recompute
from jhgnn.nn.feature_projection import Columns, FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.neighbor_aggregation import AttentionAggregation, logits_follow
from jhgnn.nn.semantic_fusion import SumFusion
from jhgnn.nn.stage import stage

SELF = "self"


class RGATLayer(nnx.Module):
    """FP, attention NA and sum SF over one layer's relations.

    A relation between two types projects senders and receivers by matrices of their own, one within a type by the
    same matrix (as GATConv of DGL and PyG); the receivers' matrix enters through its logits alone.
    """

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
        projections, target_projections = {}, {}
        for node_type in plan.reads:
            width = in_widths[node_type]
            names = plan.out_of(node_type) + ([SELF] if config.self_loop and node_type in plan.makes else [])
            if names:
                projections[node_type] = FeatureProjection(names, width, config.hidden, rngs=rngs)
            crossing = [name for name in plan.into(node_type) if plan.relations[name].source != node_type]
            if crossing:
                target_projections[node_type] = FeatureProjection(crossing, width, config.hidden, rngs=rngs)
        self.projections, self.target_projections = nnx.Dict(projections), nnx.Dict(target_projections)
        self.attention = AttentionAggregation(
            tuple(plan.relations),
            config.heads,
            config.hidden // config.heads,
            negative_slope=config.negative_slope,
            dropout_rate=config.attention_dropout,
            rngs=rngs,
        )
        activation = config.activation if config.activation != "auto" else "elu"
        self.fusions = nnx.Dict(
            {
                node_type: SumFusion(config.hidden, activation=activation, layer_norm=config.layer_norm, rngs=rngs)
                for node_type in plan.makes
            }
        )
        self.residual = nnx.static(set(plan.makes) if config.residual and layer > 0 else set())

    def _logit_columns(
        self,
        node_type: str,
        relations: Collection[str],
        sent: Sequence[str] = (),
        within: Sequence[str] = (),
        crossing: Sequence[str] = (),
    ) -> list[Columns]:
        """The matrices of a type's logits: as a sender, as a receiver from its own type, and from another."""
        columns = []
        if sent or within:
            own = self.projections[node_type]
            # All of the stack, as the projection itself takes it, but where a relation is computed apart.
            used = own.names if {*own.names} - {SELF} <= {*relations} else [n for n in own.names if n in relations]
            places = {name: place for place, name in enumerate(used)}
            as_sender, as_receiver = ({name: places[name] for name in names} for names in (sent, within))
            columns.append(self.attention.logit_columns(own.stack(used), as_sender, as_receiver))
        if crossing:
            stack = self.target_projections[node_type].stack(crossing)
            columns.append(self.attention.logit_columns(stack, {}, {name: i for i, name in enumerate(crossing)}))
        return columns

    def _project(
        self, rows: Mapping[str, Rows], node_type: str, block: Block, relations: Collection[str], *, own: bool
    ) -> dict[str, jax.Array]:
        """FP of one type for these relations, and its own part; of receivers, only those that the layer makes."""
        x, num_rows = rows[node_type], block.num_rows.get(node_type, 0)
        known = self.projections[node_type].names if node_type in self.projections else ()
        sent = [name for name in known if name in relations and name != SELF]
        makes = [SELF] if own and SELF in known else []
        into = [name for name in relations if self.plan.relations[name].target == node_type]
        within, crossing = [n for n in into if n in known], [n for n in into if n not in known]
        with stage("FP", self.layer, node_type):
            if isinstance(x, jax.Array) and num_rows < x.shape[0]:
                projected = self._by_stack(x, node_type, sent, self._logit_columns(node_type, relations, sent))
                if num_rows:
                    received = self._logit_columns(node_type, relations, (), within, crossing)
                    projected |= self._by_stack(x[:num_rows], node_type, makes, received)
                return projected
            if logits_follow(x, self.dtype):
                received = self._logit_columns(node_type, relations, crossing=crossing)
                projected = self._by_stack(x, node_type, [*sent, *makes], received)
                for name in sent:
                    projected |= self.attention.logits(projected[f"{name}/z"], [name], [name] if name in within else [])
            else:
                columns = self._logit_columns(node_type, relations, sent, within, crossing)
                projected = self._by_stack(x, node_type, [*sent, *makes], columns)
            of_receivers = {*makes, *(f"{name}/dst" for name in into)}
            return {name: part[:num_rows] if name in of_receivers else part for name, part in projected.items()}

    def _by_stack(
        self, x: Rows, node_type: str, names: Sequence[str], columns: Sequence[Columns]
    ) -> dict[str, jax.Array]:
        """Projections by these matrices of a type, relations' as `name/z`, and by `columns`."""
        outputs = [name if name == SELF else f"{name}/z" for name in names]
        stack = self.projections[node_type].stack(names) if names else None
        return project_together(
            x, outputs, stack, columns, sparse_implementation=self.sparse_implementation, dtype=self.dtype
        )

    def __call__(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> dict[str, jax.Array]:
        present = [name for name in self.plan.relations if name in block.graphs]
        separately = recompute.relations_separately()
        projected = {
            node_type: self._project(rows, node_type, block, () if separately else present, own=True)
            for node_type in self.plan.reads
            if node_type in rows
        }

        def aggregate(name: str) -> jax.Array:
            relation = self.plan.relations[name]
            source, target = projected[relation.source], projected[relation.target]
            if separately:
                source = self._project(rows, relation.source, block, [name], own=False)
                target = self._project(rows, relation.target, block, [name], own=False)
            return self.attention(
                block.graphs[name],
                source[f"{name}/z"],
                source[f"{name}/src"],
                target[f"{name}/dst"],
                layer=self.layer,
                step_seed=step_seed,
                implementation=self.implementations[name],
            )

        made = {}
        for node_type in self.plan.makes:
            num_rows = block.num_rows.get(node_type, 0)
            if not num_rows:
                continue
            parts = [
                recompute.relation(functools.partial(aggregate, name))
                for name in self.plan.into(node_type)
                if name in present
            ]
            with stage("SF", self.layer, node_type):
                own = projected[node_type].get(SELF)
                parts += [] if own is None else [own]
                made[node_type] = self.fusions[node_type](parts, num_rows)
                if node_type in self.residual:
                    made[node_type] = made[node_type] + dense_rows(rows[node_type])[:num_rows]
        return made


class RGAT(RelationalModel):
    """R-GAT for node classification."""

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(RGATLayer, config, spec, reads_targets=True, rngs=rngs)
