"""R-GAT: graph attention within each relation, summed over relations (Wang et al., ACL 2020).

As it is trained in "Characterizing and Understanding HGNN Training on GPUs", Table 2.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.packed import NAME as PACKED
from jhgnn.graph.packed import PackedGraphs
from jhgnn.nn import recompute
from jhgnn.nn.block import Block
from jhgnn.nn.edge_projection import EdgeProjection
from jhgnn.nn.feature_projection import Columns, FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.neighbor_aggregation import AttentionAggregation, logits_follow, weighs_rows
from jhgnn.nn.packed import PackedStages, narrow
from jhgnn.nn.relation_sums import RelationParts, SumOverRelations
from jhgnn.nn.relational import SELF, RelationalModel
from jhgnn.nn.stage import stage
from jhgnn.ops.indexed_rows import indexed_rows


class RGATLayer(SumOverRelations):
    r"""One layer over its relations: rows `[num_nodes, in_width]` of each type to `[num_rows, hidden]`.

    With the neighbours N_r(v) of a node v under each relation r, for each head; heads stand side by side:

        out(v) = activation( sum_r sum_{u in N_r(v)} alpha_r(u, v) W_r x_u + W_self x_v + b )
        alpha_r(u, v) = softmax over u of LeakyReLU( a_r . W_r x_u + a'_r . W'_r x_v )

    Where edges have features x_uv (`model.edge_features`), a''_r . W''_r x_uv is added inside the LeakyReLU, with one
    matrix `[width, heads]` for the product (GAT with edge features; SimpleHGN's eq. 5 where they are types of edges).

    A relation between two types has a matrix for senders, W_r, and another for receivers, W'_r. A relation within a
    type has one for both, as GATConv of DGL and PyG. The receivers' matrix is read for logits alone. W_self x_v is
    there with `model.self_loop`.
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
        if spec.edge_widths:
            self.edge_logits = EdgeProjection(plan.relations, spec.edge_widths, config.heads, rngs=rngs)
        self.add_fusions(layer, plan, config, rngs=rngs)

    def _logit_columns(
        self,
        node_type: str,
        relations: Collection[str],
        sent: Sequence[str] = (),
        within: Sequence[str] = (),
        crossing: Sequence[str] = (),
    ) -> list[Columns]:
        """The narrow matrices that give a type's logits.

        Args:
            node_type: the type.
            relations: those that are computed.
            sent: relations that the type sends along.
            within: relations within the type, for which it receives.
            crossing: relations from another type, for which it receives.
        """
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
        """FP of one type for these relations: projected rows, logits, and with `own` the self-loop's projection.

        What only receivers need is computed for the rows that the layer makes, and not for all rows that it reads.
        """
        x, num_rows = rows[node_type], block.num_rows.get(node_type, 0)
        known = self.projections[node_type].names if node_type in self.projections else ()
        sent = [name for name in known if name in relations and name != SELF]
        sent = [name for name in sent if not weighs_rows(block.graphs[name], self.implementations[name])]
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
        """Projections by a type's matrices `names`, called `name/z` for a relation, and by the narrow `columns`."""
        outputs = [name if name == SELF else f"{name}/z" for name in names]
        stack = self.projections[node_type].stack(names) if names else None
        return project_together(
            x, outputs, stack, columns, sparse_implementation=self.sparse_implementation, dtype=self.dtype
        )

    def _split(
        self, name: str, features: EdgeFeatures, z: jax.Array, logit_src: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Rows and logits of senders that were split by the features of their edges."""
        assert features.senders is not None
        with stage("NA", self.layer, name):
            of_edges = self.edge_logits(name, features, logit_src.dtype)
            return indexed_rows(z, features.senders), indexed_rows(logit_src, features.senders) + of_edges

    def aggregate(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> RelationParts:
        """FP and NA of all relations, and the self-loop's projection of each type that is made."""
        if block.packed is not None:
            return self._packed(rows, block, block.packed, step_seed)
        present = [name for name in self.plan.relations if name in block.graphs]
        separately = recompute.relations_separately()
        projected = {
            node_type: self._project(rows, node_type, block, () if separately else present, own=True)
            for node_type in self.plan.reads
            if node_type in rows
        }

        def attend(name: str) -> jax.Array:
            relation = self.plan.relations[name]
            source, target = projected[relation.source], projected[relation.target]
            if separately:
                source = self._project(rows, relation.source, block, [name], own=False)
                target = self._project(rows, relation.target, block, [name], own=False)
            graph = block.graphs[name]
            if weighs_rows(graph, self.implementations[name]):
                (weight,) = self.projections[relation.source].stack([name])
                return self.attention.over_rows(
                    graph,
                    dense_rows(rows[relation.source]),
                    weight,
                    target[f"{name}/dst"],
                    layer=self.layer,
                    step_seed=step_seed,
                )
            z, logit_src = source[f"{name}/z"], source[f"{name}/src"]
            if name in block.edge_features:
                z, logit_src = self._split(name, block.edge_features[name], z, logit_src)
            return self.attention(
                graph,
                z,
                logit_src,
                target[f"{name}/dst"],
                layer=self.layer,
                step_seed=step_seed,
                implementation=self.implementations[name],
            )

        made = RelationParts({}, {})
        for node_type in self.made(block):
            made.parts[node_type] = [
                recompute.relation(functools.partial(attend, name))
                for name in self.plan.into(node_type)
                if name in present
            ]
            own = projected[node_type].get(SELF)
            if own is not None:
                made.own[node_type] = own
        return made

    def _packed(
        self, rows: Mapping[str, Rows], block: Block, packed: PackedGraphs, step_seed: jax.Array | None
    ) -> RelationParts:
        """The same of all relations as one: slots are projected, attend at once, and are summed by receiver."""
        stages = PackedStages(packed, self.sparse_implementation, self.dtype)
        attention, receivers = self.attention, packed.receivers
        assert receivers is not None
        with stage("FP", self.layer, PACKED):
            stacks = {each: self.projections[each].stack(names) for each, names in packed.senders.names}
            z = stages.project(packed.senders, rows, stacks)
            logit_src = stages.sender_logits(attention, stacks, rows, z)
            received = {each: self._received(each, names) for each, names in receivers.names}
            logit_dst = stages.project(receivers, rows, received)
        with stage("NA", self.layer, PACKED):
            attended = stages.attend(z, logit_src, logit_dst, attention, layer=self.layer, step_seed=step_seed)
        with stage("SF", self.layer, PACKED):
            sums = stages.sums(attended)
        made = RelationParts({}, {})
        for node_type in self.made(block):
            made.parts[node_type] = [sums[node_type]]
            projected = self._project(rows, node_type, block, (), own=True) if node_type in rows else {}
            if SELF in projected:
                made.own[node_type] = projected[SELF]
        return made

    def _received(self, node_type: str, names: Sequence[str]) -> jax.Array:
        """The narrow matrices of a type's receivers, `[names, width, heads]`, relations within the type first."""
        known = self.projections[node_type].names if node_type in self.projections else ()
        parts = []
        for projections, own in (
            (self.projections, [name for name in names if name in known]),
            (self.target_projections, [name for name in names if name not in known]),
        ):
            if own:
                vectors = self.attention.vectors(self.attention.a_dst_rhd, own)
                parts.append(narrow(projections[node_type].stack(own), vectors))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


class RGAT(RelationalModel):
    """R-GAT: layers of `RGATLayer` over all relations that lead to the target types."""

    aggregation: ClassVar[Literal["neighbor_attention"]] = "neighbor_attention"
    default_layers: ClassVar[int] = 3  # Table 2 of the characterization paper
    default_activation: ClassVar[str] = "elu"
    reads_edge_features: ClassVar[bool] = True
    reads_packed: ClassVar[bool] = True
    make_layer = RGATLayer

    @classmethod
    def projects_after_attention(cls, config: ModelConfig) -> bool:
        return True


MODEL = RGAT
