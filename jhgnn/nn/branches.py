"""A model computed by branches of its metatree: what one shard makes of the targets, and what follows their meeting.

A shard of the mesh axis `rel` holds some of the relations (or metapaths) into the targets, its branches, and everything
below them. All layers but the last are complete for the vertices that its branches lead to; the last layer sums its own
relations alone. Those sums meet once (`jhgnn.training.rel_meeting`), and the rest of the last layer is computed by all.

Source: Heta (Zhong et al., PVLDB 18(9)), relation-aggregation-first execution.
"""

import dataclasses
from typing import Any, NamedTuple, cast

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
    """What a shard holds.

    Attributes:
        names: its relations into the targets, or its metapaths.
        own_row: whether it adds the targets' own projection (the self-loop), where the model has one.
        makes: by hop, from the targets outwards, the types whose rows a layer makes; only the target type at hop 0.
        reads: the types whose input rows are read.
    """

    names: tuple[str, ...]
    own_row: bool
    makes: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]


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


class OwnSums(NamedTuple):
    """What a shard makes of the targets; a zero-width array where the model has nothing to say there.

    Attributes:
        values: the sum over its relations, `[targets, hidden]`; of attention over metapaths the result of each,
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
    slots: int = 0,
    keeps_rows: bool = False,
) -> OwnSums:
    """A shard's part of the last layer, from all layers before it.

    Args:
        model: over relations or metapaths.
        inputs: of the shard's branches.
        own: the branches.
        step_seed: uint32 scalar of this step's dropout; None: no dropout.
        reduce: for the layers before the last, which have all relations.
        slots: of metapaths; as many as any shard has.
        keeps_rows: whether the last layer has a residual.
    """
    index, (target,) = len(model.layers) - 1, model.targets
    layer: Any = model.layers[index]
    block = model._block(inputs, index)
    rows = model._run(index, inputs, step_seed, reduce)
    read = model._dropped(rows, index, block, step_seed)
    num_rows = block.num_rows[target]

    def sums() -> tuple[jax.Array, jax.Array]:
        parts = layer.aggregate(read, block, step_seed)
        if slots:
            return _of_metapaths(layer.fusion, parts, block.targets.get(target), slots)
        assert isinstance(parts, RelationParts)
        added = list(parts.parts[target])
        if own.own_row and target in parts.own:
            added.append(parts.own[target])
        partial = layer.partial(RelationParts({target: added}, {}), block)
        return partial.values[target], jnp.zeros(0, partial.values[target].dtype)

    values, scores = recompute.layer(sums)
    kept = dense_rows(read[target])[:num_rows] if keeps_rows else jnp.zeros((num_rows, 0), values.dtype)
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
    block, rows = Block({}, {target: met.shape[0]}), {target: own_rows}
    if model.fuses_over_targets:
        return layer.finish(rows, met, block)
    return cast(Layer, layer).fuse(rows, RelationParts({target: []}, {}), block, {target: met})


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
