"""R-GCN: the mean over each relation's neighbours, summed over relations (Schlichtkrull et al., ESWC 2018, eq. 2)."""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.edge_features import EdgeFeatures
from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.packed import NAME as PACKED
from jhgnn.graph.packed import PackedGraphs
from jhgnn.graph.sampled import NeighborTable
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.graph.stacked import StackedRelations
from jhgnn.nn.block import Block
from jhgnn.nn.edge_projection import EdgeProjection
from jhgnn.nn.feature_projection import FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.neighbor_aggregation import mean_aggregation, sum_aggregation
from jhgnn.nn.packed import PackedStages
from jhgnn.nn.relation_sums import RelationParts, SumOverRelations
from jhgnn.nn.relational import SELF, RelationalModel
from jhgnn.nn.stage import stage
from jhgnn.ops.indexed_rows import indexed_rows, rows_at

CALL_OPERATIONS = 1_000_000
"""What one more matmul costs to call, in operations: about 10 us."""


class RGCNLayer(SumOverRelations):
    r"""One layer over its relations: rows `[num_nodes, in_width]` of each type to `[num_rows, hidden]`.

    With the neighbours N_r(v) of a node v under each relation r:

        out(v) = activation( sum_r mean_{u in N_r(v)} W_r x_u + W_self x_v + b )

    Where edges have features x_uv (`model.edge_features`), a message is W_r x_u + W'_r x_uv.

    With B bases, W_r is a sum over b of c_rb V_b (eq. 3); with blocks it is block-diagonal (eq. 4). W_self x_v is there
    with `model.self_loop`.

    The mean and the projection W_r may change places. Where it is less work (`aggregates_first`) the mean is taken
    first, and only receivers' rows are projected. Relations that come stacked, which need bases, are always aggregated
    first: one weighted sum for each basis over all their edges, and one matmul, instead of a projection of every node
    for every relation. One-hot rows of packed relations read combined bases, on a CPU with our kernels (`basis_rows`);
    elsewhere the W_r of all relations are made.
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
        self.dtype, self.hidden = jnp.dtype(config.dtype), config.hidden
        projections = {}
        for node_type in plan.reads:
            names = plan.out_of(node_type) + ([SELF] if config.self_loop and node_type in plan.makes else [])
            if names:
                projections[node_type] = FeatureProjection(
                    names, in_widths[node_type], config.hidden, bases=config.bases, blocks=config.blocks, rngs=rngs
                )
        self.projections = nnx.Dict(projections)
        if spec.edge_widths:
            self.edge_projection = EdgeProjection(plan.relations, spec.edge_widths, config.hidden, rngs=rngs)
        self.add_fusions(layer, plan, config, rngs=rngs)

    def aggregate(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> RelationParts:
        """FP and NA of all relations, and the self-loop's projection of each type that is made."""
        if block.packed is not None:
            return self._packed(rows, block, block.packed)
        late = {
            name
            for name, relation in self.plan.relations.items()
            if name in block.graphs
            and relation.source in rows
            and aggregates_first(block.graphs[name], rows[relation.source], self.hidden)
        }
        late |= {name for stack in block.stacks.values() for name in stack.relations}
        z: dict[str, dict[str, jax.Array]] = {}
        for node_type, projection in self.projections.items():
            if node_type not in rows:
                continue
            with stage("FP", self.layer, node_type):
                x = rows[node_type]
                fewer = isinstance(x, jax.Array) and block.num_rows.get(node_type, 0) < x.shape[0]
                left_out = late | ({SELF} if fewer else set())
                here = [n for n in projection.names if n == SELF or n in block.graphs]
                z[node_type] = self._project(x, node_type, tuple(n for n in here if n not in left_out))
        made = RelationParts({}, {})
        for node_type in self.made(block):
            num_rows = block.num_rows[node_type]
            made.parts[node_type] = [
                self._aggregate(name, rows, z, block) for name in self.plan.into(node_type) if name in block.graphs
            ]
            made.parts[node_type] += [
                self._of_edges(name, features, num_rows)
                for name, features in block.edge_features.items()
                if name in self.plan.into(node_type)
            ]
            for name, stack in block.stacks.items():
                if stack.target == node_type and stack.source in rows:
                    summed = self._stacked(stack, dense_rows(rows[stack.source]), block.weights.get(name))
                    made.parts[node_type].append(summed[:num_rows])
            if self._has_own(node_type, rows):
                if SELF in z[node_type]:
                    made.own[node_type] = z[node_type][SELF][:num_rows]
                else:
                    with stage("FP", self.layer, node_type):
                        own = dense_rows(rows[node_type])[:num_rows]
                        made.own[node_type] = self._project(own, node_type, (SELF,))[SELF]
        return made

    def _packed(self, rows: Mapping[str, Rows], block: Block, packed: PackedGraphs) -> RelationParts:
        """The same of all relations as one: each sender's slot is projected, then all means are summed at once."""
        stages = PackedStages(packed, self.sparse_implementation, self.dtype)
        with stage("FP", self.layer, PACKED):
            z, own = self._project_slots(rows, stages)
        with stage("NA", self.layer, PACKED):
            sums = stages.mean_sums(z)
        made = RelationParts({}, {})
        for node_type in self.made(block):
            made.parts[node_type] = [sums[node_type]]
            if node_type in own:
                made.own[node_type] = own[node_type]
            elif self._has_own(node_type, rows):
                num_rows = block.num_rows[node_type]
                with stage("FP", self.layer, node_type):
                    x = rows[node_type]
                    few = x[:num_rows] if isinstance(x, jax.Array) else x
                    made.own[node_type] = self._project(few, node_type, (SELF,))[SELF][:num_rows]
        return made

    def _project_slots(
        self, rows: Mapping[str, Rows], stages: PackedStages
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Senders' slots by node type, and the self-loop's rows of types whose one-hot rows read combined bases."""
        side = stages.packed.senders
        z: dict[str, jax.Array] = {}
        own: dict[str, jax.Array] = {}
        for node_type, names in side.names:
            projection, groups, x = self.projections[node_type], side.groups[node_type], rows[node_type]
            slots = groups.features
            if not isinstance(slots, OneHotSlots):
                z[node_type] = stages.project_type(groups, x, projection.stack(names))
                continue
            assert isinstance(x, SparseFeatures)
            with_own = (*names, SELF) if slots.own_rows else names
            z[node_type], of_rows = stages.project_one_hot(slots, x, *projection.combinations(with_own))
            if slots.own_rows:
                own[node_type] = of_rows
        return z, own

    def _has_own(self, node_type: str, rows: Mapping[str, Rows]) -> bool:
        return node_type in rows and node_type in self.projections and SELF in self.projections[node_type].names

    def _project(self, x: Rows, node_type: str, names: tuple[str, ...]) -> dict[str, jax.Array]:
        if not names:
            return {}
        return project_together(
            x,
            names,
            self.projections[node_type].stack(names),
            sparse_implementation=self.sparse_implementation,
            dtype=self.dtype,
        )

    def _aggregate(
        self, name: str, rows: Mapping[str, Rows], z: Mapping[str, Mapping[str, jax.Array]], block: Block
    ) -> jax.Array:
        """The projected mean of one relation, `[num_targets, hidden]`."""
        source = self.plan.relations[name].source
        first = name not in z[source]
        x = dense_rows(rows[source]).astype(self.dtype) if first else z[source][name]
        aggregated = mean_aggregation(
            block.graphs[name],
            x,
            layer=self.layer,
            implementation=self.implementations[name],
            weights=block.weights.get(name),
        )
        if not first:
            return aggregated
        with stage("FP", self.layer, source):
            return self._project(aggregated, source, (name,))[name]

    def _of_edges(self, name: str, features: EdgeFeatures, num_rows: int) -> jax.Array:
        """The projected mean of a relation's edge features, `[num_rows, hidden]`."""
        with stage("FP", self.layer, name):
            return self.edge_projection(name, features, self.dtype)[:num_rows]

    def _stacked(self, stack: StackedRelations, x: jax.Array, weights: jax.Array | None) -> jax.Array:
        """Sum over the stack's relations of the projected means, `[num_targets, hidden]` (R-GCN eq. 2 and 3)."""
        projection = self.projections[stack.source]
        numbers = [projection.names.index(name) for name in stack.relations]
        with stage("NA", self.layer, stack.graph.name):
            coefficients = rows_at(projection.c_rb[...], numbers)
            own = stack.weights if weights is None else weights
            of_edges = indexed_rows(coefficients, stack.relation_of_edge.reshape(-1))
            by_basis = of_edges.reshape(*own.shape, projection.bases) * own[..., None]
            x = x.astype(self.dtype)
            sums = [
                sum_aggregation(stack.graph, x, by_basis[..., basis], implementation=stack.implementation)
                for basis in range(projection.bases)
            ]
        with stage("FP", self.layer, stack.graph.name):
            joined = projection.v_bio[...].reshape(-1, projection.out_width)
            return jnp.concatenate(sums, axis=1) @ joined.astype(self.dtype)


class RGCN(RelationalModel):
    """R-GCN: layers of `RGCNLayer` over all relations that lead to the target types."""

    default_layers: ClassVar[int] = 3  # Table 2 of the characterization paper
    decomposes: ClassVar[bool] = True
    weighs_edges: ClassVar[bool] = True
    means_of_inputs: ClassVar[bool] = True
    reads_edge_features: ClassVar[bool] = True
    reads_packed: ClassVar[bool] = True
    reads_one_hot_slots: ClassVar[bool] = True
    make_layer = RGCNLayer


def aggregates_first(graph: SemanticGraph | NeighborTable, x: Rows, out_width: int) -> bool:
    """Whether a mean is taken before its projection. The two commute, so it is where that is less work.

    To project receivers instead of senders saves two operations for each row and element of the weight. Where rows are
    wider before the projection, each edge gathers more floats, at eight operations each. Sparse rows are projected
    first in any case. A batch of the MAG recipe projects 32,064 rows instead of 482,816; for whole graphs see
    docs/experiments.md.
    """
    if not isinstance(x, jax.Array):
        return False
    in_width = x.shape[1]
    num_edges = graph.num_edges if isinstance(graph, SemanticGraph) else graph.num_targets * graph.width
    saved = 2 * in_width * out_width * (graph.num_sources - graph.num_targets)
    return saved > 8 * num_edges * (in_width - out_width) + CALL_OPERATIONS


MODEL = RGCN
