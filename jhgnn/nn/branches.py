"""A model computed by branches of its metatree: what one shard makes of the targets, and what follows their meeting.

A shard of the mesh axis `rel` holds some of the relations (or metapaths) into the targets, its branches, and everything
below them. All layers but the last are complete for the vertices that its branches lead to; the last layer sums its own
relations alone. Those sums meet once (`jhgnn.training.rel_meeting`), and the rest of the last layer is computed by all.

Where a plan cuts a branch deeper, the vertices that it leads to, its frontier, are to the layer before the last what
the targets are to the last one: shards sum relations into them, the sums meet on the shard that has the branch
(`jhgnn.training.frontier_meeting`), and that shard finishes the layer and goes on.

Source: Heta (Zhong et al., PVLDB 18(9)), relation-aggregation-first execution.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jhgnn.nn import recompute
from jhgnn.nn.block import Block
from jhgnn.nn.feature_projection import dense_rows
from jhgnn.nn.inputs import SampledInputs
from jhgnn.nn.layer import Layer
from jhgnn.nn.model import Model
from jhgnn.nn.reduction import Reduce
from jhgnn.nn.relation_sums import RelationParts
from jhgnn.nn.semantic_fusion import AttentionFusion


@dataclasses.dataclass(frozen=True)
class OwnBranches:
    """What a shard holds of the branches into some vertices: the targets, or the frontier of a branch that is cut.

    Attributes:
        names: its relations into them, or its metapaths.
        own_row: whether it adds their own projection (the self-loop), where the model has one.
        makes: by hop, from the targets outwards, the types whose rows a layer makes; none where others make them.
        reads: the types whose input rows are read.
        node_type: of the vertices.
        hop: at which the vertices stand; 0 for the targets.
        given: of a branch that is cut, the type of its own frontier, whose sums others make; else "".
    """

    names: tuple[str, ...]
    own_row: bool
    makes: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]
    node_type: str
    hop: int = 0
    given: str = ""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BranchInputs(SampledInputs):
    """The sampled blocks of a shard's branches; `makes` is that of `OwnBranches`.

    A batch's targets have slots at every hop. Where no branch needs their state there, no rows are made of them.
    """

    makes: tuple[tuple[str, ...], ...] = dataclasses.field(default=(), metadata={"static": True})

    def block(self, hop: int, num_nodes: Any) -> Block:
        block = super().block(hop, num_nodes)
        made = {name: count for name, count in block.num_rows.items() if name in self.makes[hop]}
        return dataclasses.replace(block, num_rows=made)

    def table_rows(self, table: jax.Array, node_type: str) -> jax.Array | None:
        """The rows of an embedding table that the branches read, or None where they read none of that type."""
        return super().table_rows(table, node_type) if table.shape[0] else None


class OwnSums(NamedTuple):
    """What a shard makes of its vertices; a zero-width array where the model has nothing to say there.

    Attributes:
        values: the sum over its relations, `[vertices, hidden]`; of attention over metapaths the result of each,
            `[slots, targets, hidden]`, zeros in slots beyond its metapaths.
        scores: of each metapath, summed over the targets at hand, `[slots]`.
        own_rows: the last layer's input rows of the targets, `[targets, hidden]`, where a residual adds them.
    """

    values: jax.Array
    scores: jax.Array
    own_rows: jax.Array


def own_sums(
    model: Model,
    inputs: BranchInputs,
    own: OwnBranches,
    step_seed: jax.Array | None,
    reduce: Reduce,
    *,
    given: jax.Array | None = None,
    slots: int = 0,
    keeps_rows: bool = False,
) -> OwnSums:
    """A shard's part of the layer that makes its vertices, the last one for the targets, from all layers before it.

    Args:
        model: over relations or metapaths.
        inputs: of the shard's branches.
        own: the branches.
        step_seed: uint32 scalar of this step's dropout; None: no dropout.
        reduce: for the layers before that, which have all relations.
        given: of a branch that is cut, what all shards' sums of its frontier met to, `[frontier, hidden]`.
        slots: of metapaths; as many as any shard has.
        keeps_rows: whether the last layer has a residual.
    """
    index, node_type = len(model.layers) - 1 - own.hop, own.node_type
    layer: Any = model.layers[index]
    block = model._block(inputs, index)
    rows = model._run(index, inputs, step_seed, reduce)
    if given is not None:
        rows = rows | _of_sums(model.layers[index - 1], own.given, given, {})
    read = model._dropped(rows, index, block, step_seed)
    num_rows = block.num_rows[node_type]

    def sums() -> tuple[jax.Array, jax.Array]:
        parts = layer.aggregate(read, block, step_seed)
        if slots:
            return _of_metapaths(layer.fusion, parts, block.targets.get(node_type), slots)
        assert isinstance(parts, RelationParts)
        added = list(parts.parts[node_type])
        if own.own_row and node_type in parts.own:
            added.append(parts.own[node_type])
        values = layer.partial(RelationParts({node_type: added}, {}), block).values[node_type]
        return values, jnp.zeros(0, values.dtype)

    values, scores = recompute.layer(sums)
    kept = dense_rows(read[node_type])[:num_rows] if keeps_rows else jnp.zeros((num_rows, 0), values.dtype)
    return OwnSums(values, scores, kept)


def _of_metapaths(
    fusion: AttentionFusion, parts: list[jax.Array], targets: jax.Array | None, slots: int
) -> tuple[jax.Array, jax.Array]:
    """A score is linear in the sum over targets, so its own sum is all that others need of it."""
    summed = fusion.partial(parts, targets)
    scores = jnp.concatenate([total @ fusion.query[...] for total in summed.totals])
    values = jnp.stack([part.astype(scores.dtype) for part in parts])
    empty = slots - len(parts)
    return jnp.pad(values, ((0, empty), (0, 0), (0, 0))), jnp.pad(scores, (0, empty))


def finished(model: Model, met: jax.Array, own_rows: jax.Array) -> dict[str, jax.Array]:
    """The last layer's rows of the targets, `[targets, hidden]`, from what all shards' sums met to.

    Args:
        met: the sum over all relations, or over all metapaths weighted by their attention, `[targets, hidden]`.
        own_rows: as in `OwnSums`.
    """
    (target,) = model.targets
    layer: Any = model.layers[-1]
    if model.fuses_over_targets:
        return layer.finish({target: own_rows}, met, Block({}, {target: met.shape[0]}))
    return _of_sums(layer, target, met, {target: own_rows})


def _of_sums(layer: Layer, node_type: str, sums: jax.Array, own_rows: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """A layer's rows of one type, `[rows, hidden]`, from the sums over all relations into them."""
    block = Block({}, {node_type: sums.shape[0]})
    return layer.fuse(own_rows, RelationParts({node_type: []}, {}), block, {node_type: sums})


def last_layer_has_residual(structure: nnx.GraphDef, params: Any) -> bool:
    """Whether the last layer adds its input to its output."""
    found: Any = nnx.eval_shape(lambda: nnx.merge(structure, params)).layers[-1].residual
    return bool(found)


def by_branches(structure: nnx.GraphDef, params: Any) -> bool:
    """Whether the last layer's fusion is one that shards can meet in: a sum over relations, or attention."""
    model: Any = nnx.eval_shape(lambda: nnx.merge(structure, params))
    layer = model.layers[-1]
    if model.fuses_over_targets:
        return isinstance(getattr(layer, "fusion", None), AttentionFusion) and hasattr(layer, "finish")
    return hasattr(layer, "fusions")
