"""HAN: attention along metapath graphs, then attention over metapaths (Wang et al., WWW 2019)."""

import functools
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.config import ModelConfig
from jhgnn.graph.packed import NAME as PACKED
from jhgnn.graph.packed import PackedGraphs
from jhgnn.graph.schema import Relation
from jhgnn.nn.block import Block
from jhgnn.nn.embeddings import InputEmbeddings
from jhgnn.nn.feature_projection import Columns, FeatureProjection, Rows, dense_rows, project_together
from jhgnn.nn.inputs import GraphSpec
from jhgnn.nn.layer import Layer
from jhgnn.nn.layer_plan import LayerPlan
from jhgnn.nn.model import Model
from jhgnn.nn.neighbor_aggregation import AttentionAggregation, logits_follow, weighs_rows
from jhgnn.nn.observed import show
from jhgnn.nn.packed import PackedStages, narrow
from jhgnn.nn.reduction import Partial
from jhgnn.nn.semantic_fusion import ACTIVATIONS, AttentionFusion, TargetSums
from jhgnn.nn.stage import border, stage
from jhgnn.ops.indexed_rows import rows_at


class PackedParts(NamedTuple):
    """z_P of the nodes that have an edge along a metapath P, and of those that have none.

    Attributes:
        slots: `[receiver slots, hidden]`.
        without_edges: `[metapaths, hidden]`, the same row for all such nodes.
    """

    slots: jax.Array
    without_edges: jax.Array


class HANLayer(Layer):
    r"""FP, NA and SF over the metapaths of one node type: rows `[num_nodes, in_width]` to `[num_rows, hidden]`.

    With the senders u of a node v along metapath P, for each head; heads stand side by side:

        z_P(v) = activation( sum_u alpha_P(u, v) W_P x_u + b_P )
        alpha_P(u, v) = softmax over u of LeakyReLU( a_P . W_P x_u + a'_P . W_P x_v )
        out(v) = sum_P beta_P z_P(v)
        beta = softmax over P of mean over v of q . tanh( W z_P(v) + b )

    The mean over v makes beta depend on many nodes at once. In full-batch training it runs over all nodes of the target
    type; in a mini-batch over the batch's targets, in every layer. So a batch that holds all nodes gives the full-batch
    result. The mean is over the whole batch, however many devices share it.
    """

    def __init__(self, layer: int, in_width: int, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        (self.target,) = spec.targets
        self.layer = layer
        self.metapaths = spec.metapaths
        along = {name: Relation(self.target, name, self.target) for name in spec.metapaths}
        self.plan = nnx.static(LayerPlan(along, (self.target,), (self.target,)))
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
        self.activation = config.activation
        self.implementations = nnx.static(tuple(spec.implementations[name] for name in spec.metapaths))
        self.sparse_implementation = spec.sparse_implementation
        self.dtype = jnp.dtype(config.dtype)

    def aggregate(
        self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None
    ) -> "list[jax.Array] | PackedParts":
        """FP and NA: z_P for each metapath that the block has, `[num_rows, hidden]`; of packed ones in slots.

        Sums over neighbours that are reused are taken over here, before the bias and the activation.
        """
        if block.packed is not None:
            return self._packed(rows, block.packed, step_seed)
        reused, parts = block.reused.get(self.target), []
        for place, (name, attended) in enumerate(self._attended(rows, block, step_seed)):
            with stage("NA", self.layer, name):
                if reused is not None:
                    attended = reused.part(place, attended.shape[1]).into(attended)
                if not self.projection_bias:
                    bias = self.bias_po[self.metapaths.index(name)]
                    attended = attended + bias[None, :].astype(attended.dtype)
                parts.append(ACTIVATIONS[self.activation](attended))
        return parts

    def of_neighbors(self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None) -> dict[str, jax.Array]:
        """See `Layer`: the sums over neighbours along each metapath that the block has, side by side."""
        parts = [attended for _, attended in self._attended(rows, block, step_seed)]
        return {self.target: jnp.concatenate(parts, axis=1)}

    def _attended(
        self, rows: Mapping[str, Rows], block: Block, step_seed: jax.Array | None
    ) -> Iterator[tuple[str, jax.Array]]:
        """The attended sum over neighbours along each metapath that the block has, `[num_rows, hidden]`."""
        x, num_rows = rows[self.target], block.num_rows[self.target]
        drawn = tuple(name for name in self.metapaths if name in block.graphs)
        implementations = dict(zip(self.metapaths, self.implementations, strict=True))
        weighted = tuple(name for name in drawn if weighs_rows(block.graphs[name], implementations[name]))
        present = tuple(name for name in drawn if name not in weighted)
        projected = self._project(x, present) if present else {}
        projected |= self._received(dense_rows(x)[:num_rows], weighted) if weighted else {}
        for name in drawn:
            graph, logit_dst = block.graphs[name], projected[f"{name}/dst"][:num_rows]
            if weighs_rows(graph, implementations[name]):
                (weight,) = self.projection.stack([name])
                yield (
                    name,
                    self.attention.over_rows(
                        graph, dense_rows(x), weight, logit_dst, layer=self.layer, step_seed=step_seed
                    ),
                )
            else:
                yield (
                    name,
                    self.attention(
                        graph,
                        projected[f"{'shared' if self.shared_projection else name}/z"],
                        projected[f"{name}/src"],
                        logit_dst,
                        layer=self.layer,
                        step_seed=step_seed,
                        implementation=implementations[name],
                    ),
                )

    def _project(self, x: Rows, present: tuple[str, ...]) -> dict[str, jax.Array]:
        """FP along these metapaths: `SPACE/z`, and the logits of all rows, `NAME/src` and `NAME/dst`."""
        spaces = present if set(present) < set(self.projection.names) else self.projection.names
        with stage("FP", self.layer):
            stack = self.projection.stack(None if spaces == self.projection.names else spaces)
            follow = logits_follow(x, self.dtype)
            projected = project_together(
                x,
                [f"{space}/z" for space in spaces],
                stack,
                [] if follow else [self._logit_columns(stack, present)],
                sparse_implementation=self.sparse_implementation,
                dtype=self.dtype,
            )
            if self.projection_bias:
                projected = self._add_bias(projected, spaces, present)
            if follow:
                for space in spaces:
                    of_space = present if self.shared_projection else (space,)
                    projected |= self.attention.logits(projected[f"{space}/z"], of_space, of_space)
        return projected

    def _received(self, x: jax.Array, names: tuple[str, ...]) -> dict[str, jax.Array]:
        """The logits of receivers' rows alone, `NAME/dst`, along metapaths whose senders are not projected."""
        with stage("FP", self.layer):
            places = {name: place for place, name in enumerate(names)}
            columns = self.attention.logit_columns(self.projection.stack(names), {}, places)
            return project_together(
                x, [], None, [columns], sparse_implementation=self.sparse_implementation, dtype=self.dtype
            )

    def _packed(self, rows: Mapping[str, Rows], packed: PackedGraphs, step_seed: jax.Array | None) -> "PackedParts":
        """The same of all metapaths as one, in the slots of nodes that have an edge along a metapath."""
        stages = PackedStages(packed, self.sparse_implementation, self.dtype)
        assert packed.receivers is not None
        groups = packed.receivers.groups[self.target]
        ((_, names),) = packed.receivers.names
        places = [self.metapaths.index(name) for name in names]
        with stage("FP", self.layer, PACKED):
            stack = self.projection.stack(names)
            z = stages.project(packed.senders, rows, {self.target: stack})
            logit_src = stages.sender_logits(self.attention, {self.target: stack}, rows, z)
            received = narrow(stack, self.attention.vectors(self.attention.a_dst_rhd, names))
            logit_dst = stages.project(packed.receivers, rows, {self.target: received})
        with stage("NA", self.layer, PACKED):
            attended = stages.attend(z, logit_src, logit_dst, self.attention, layer=self.layer, step_seed=step_seed)
            bias = rows_at(self.bias_po[...], places).astype(attended.dtype)
            activate = ACTIVATIONS[self.activation]
            return PackedParts(activate(attended + stages.of_slots(groups, bias)), activate(bias))

    def partial(self, parts: "list[jax.Array] | PackedParts", block: Block) -> Partial:
        """The sum of tanh( W z_P(v) + b ) over the targets at hand, and how many they are."""
        if isinstance(parts, PackedParts):
            return self._packed_partial(parts, block)
        with stage("SF", self.layer):
            return Partial(self.fusion.partial(parts, block.targets.get(self.target)), "targets", self.layer)

    def _packed_partial(self, parts: "PackedParts", block: Block) -> Partial:
        assert block.packed is not None
        assert block.packed.receivers is not None
        groups, num_rows = block.packed.receivers.groups[self.target], block.num_rows[self.target]
        stages = PackedStages(block.packed, self.sparse_implementation, self.dtype)
        with stage("SF", self.layer):
            apart = (num_rows - groups.counts).astype(jnp.float32)[:, None]
            of_slots = stages.sums_by_graph(groups, self.fusion.transformed(parts.slots))
            totals = of_slots + apart * self.fusion.transformed(parts.without_edges)
            return Partial(TargetSums(tuple(totals), float(num_rows)), "targets", self.layer)

    def _packed_fused(self, parts: "PackedParts", packed: PackedGraphs, sums: TargetSums) -> jax.Array:
        """Every node's row as if it had no edge, and in the slots what its edges change of it."""
        assert packed.receivers is not None
        groups = packed.receivers.groups[self.target]
        stages = PackedStages(packed, self.sparse_implementation, self.dtype)
        betas = self.fusion.weights(sums)[:, None]
        bare = parts.without_edges.astype(betas.dtype)
        changed = parts.slots.astype(betas.dtype) - stages.of_slots(groups, bare)
        summed = stages.sums(changed * stages.of_slots(groups, betas))[self.target]
        return border(summed + (betas * bare).sum(axis=0, keepdims=True), "sf_out")

    def fuse(
        self, rows: Mapping[str, Rows], parts: "list[jax.Array] | PackedParts", block: Block, sums: TargetSums
    ) -> dict[str, jax.Array]:
        """The sum of beta_P z_P, with beta from the sums over all targets of the batch."""
        if isinstance(parts, PackedParts):
            assert block.packed is not None
            with stage("SF", self.layer):
                fused = self._packed_fused(parts, block.packed, sums)
            return self.finish(rows, fused, block)
        with stage("SF", self.layer):
            for place, name in enumerate(name for name in self.metapaths if name in block.graphs):
                show("semantic attention", self.layer, name, functools.partial(self._beta, sums, place))
            fused = self.fusion.finish(parts, sums)
        return self.finish(rows, fused, block)

    def _beta(self, sums: TargetSums, place: int) -> jax.Array:
        return self.fusion.weights(sums)[place]

    def finish(self, rows: Mapping[str, Rows], fused: jax.Array, block: Block) -> dict[str, jax.Array]:
        """Norm and residual, after the attention: what does not depend on how the metapaths were added up."""
        with stage("SF", self.layer):
            if self.norm is not None:
                fused = self.norm(fused)
            if self.residual:
                fused = fused + dense_rows(rows[self.target])[: block.num_rows[self.target]]
            return {self.target: fused}

    def _add_bias(
        self, projected: dict[str, jax.Array], spaces: tuple[str, ...], present: tuple[str, ...]
    ) -> dict[str, jax.Array]:
        """Adds a bias to projections, and to logits that were computed beside them what that bias adds to them."""
        every = self.bias_po[...]
        if spaces != self.projection.names:
            every = rows_at(every, [self.projection.names.index(space) for space in spaces])
        rows = every[:, None, :]
        biases = {f"{space}/z": row for space, row in zip(spaces, rows, strict=True)}
        if len(projected) > len(biases):
            names, columns = self._logit_columns(rows, present)
            biases |= dict(zip(names, jnp.split(columns, len(names), axis=1), strict=True))
        return {name: part + biases[name].astype(part.dtype) for name, part in projected.items()}

    def _logit_columns(self, stack: jax.Array, present: tuple[str, ...]) -> Columns:
        places = {name: 0 if self.shared_projection else place for place, name in enumerate(present)}
        return self.attention.logit_columns(stack, places, places)


class HAN(Model):
    """HAN: layers of `HANLayer` over the metapaths of the target type, whose rows alone are read and made."""

    over: ClassVar[Literal["metapaths"]] = "metapaths"
    aggregation: ClassVar[Literal["neighbor_attention"]] = "neighbor_attention"
    default_layers: ClassVar[int] = 1
    default_activation: ClassVar[str] = "elu"
    fuses_over_targets: ClassVar[bool] = True
    reuses_parts: ClassVar[bool] = True
    reads_packed: ClassVar[bool] = True

    @classmethod
    def packs(cls, config: ModelConfig) -> bool:
        """Not with one projection for all metapaths, or a bias before attention, as PyG defines it."""
        return not (config.shared_projection or config.projection_bias)

    @classmethod
    def projects_after_attention(cls, config: ModelConfig) -> bool:
        return cls.packs(config)

    def __init__(self, config: ModelConfig, spec: GraphSpec, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, spec, rngs=rngs)
        config = self.settled(config)
        self.embeddings = InputEmbeddings(spec.targets, spec, config.hidden, rngs=rngs)
        (width,) = self.embeddings.widths.values()
        layers = []
        for layer in range(config.layers):
            layers.append(HANLayer(layer, width, config, spec, rngs=rngs))
            width = config.hidden
        self.layers = nnx.List(layers)


MODEL = HAN
