"""Micro-batches: a device computes its share of a batch part after part, and holds the tensors of one part at a time.

The update is that of the whole share. Losses and gradients are added up and divided once, by the number of examples of
the whole batch, and a node draws the same neighbours in every part. Where a model's fusion runs over all targets, as
HAN's, its sums are first added up over all parts, a layer at a time. Every part then sees the sums of the whole batch,
and the gradient flows through them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jhgnn.nn.embeddings import with_tables
from jhgnn.nn.reduction import Partial, Reduce
from jhgnn.stores.touched import TouchedRows, take

Touched: TypeAlias = dict[str, TouchedRows]
Params = Any


class PartSums(NamedTuple):
    """Sums over one share or a part of it, and no means: gradients of all weights but tables, and float32 scalars."""

    gradients: Params
    loss: jax.Array
    num_examples: jax.Array
    overflows: jax.Array


def sums_of_parts(part_sums: Callable[[Any], tuple[PartSums, Touched]], parts: Any) -> tuple[PartSums, Touched]:
    """The sums over parts whose gradients can be taken one by one; `parts` have an axis over the parts in front."""
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), parts)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(part_sums, first)[0])

    def add(total: PartSums, part: Any) -> tuple[PartSums, Touched]:
        own, rows = part_sums(part)
        return jax.tree.map(jnp.add, total, own), rows

    total, rows = jax.lax.scan(add, zeros, parts)
    return total, {name: _joined(each) for name, each in rows.items()}


class CommonFusion(NamedTuple):
    """What `sums_with_common_fusion` calls, all traced; `rows` are those of the embedding tables that a part touches.

    Attributes:
        num_layers: of the model.
        touched: part -> ids of the rows of each embedding table that it reads.
        partial_sums: (dense parameters, rows, part, sums of the layers before) -> the next layer's `Partial`.
        loss: (dense parameters, rows, part, reduction) -> summed loss, number of examples, overflows.
        over_devices: adds up the sums of all devices' parts.
    """

    num_layers: int
    touched: Callable[[Any], dict[str, jax.Array]]
    partial_sums: Callable[[Params, Mapping[str, jax.Array], Any, Sequence[Any]], Partial]
    loss: Callable[[Params, Mapping[str, jax.Array], Any, Reduce], tuple[jax.Array, jax.Array, jax.Array]]
    over_devices: Reduce


def sums_with_common_fusion(
    calls: CommonFusion, params: Params, tables: Mapping[str, jax.Array], parts: Any
) -> tuple[PartSums, Touched]:
    """The sums for models whose fusion runs over the targets of the whole batch, by one gradient through all passes."""
    ids: dict[str, jax.Array] = {}
    if tables:
        ids = jax.lax.scan(lambda _, part: (None, calls.touched(part)), None, parts)[1]

    def objective(dense: Params, rows: dict[str, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        known = common_sums(calls, dense, rows, parts)

        @jax.checkpoint
        def add(total: tuple[jax.Array, ...], part: Any) -> tuple[tuple[jax.Array, ...], None]:
            own, own_rows = part
            found = calls.loss(dense, own_rows, own, lambda partial: known[partial.layer])
            return tuple(map(jnp.add, total, found)), None

        (loss, count, overflows), _ = jax.lax.scan(add, (jnp.zeros(()),) * 3, (parts, rows))
        return loss, (count, overflows)

    gathered = {name: jax.vmap(take, (None, 0))(table, ids[name]) for name, table in tables.items()}
    gradient = jax.value_and_grad(objective, argnums=(0, 1), has_aux=True)
    (loss, (count, overflows)), (dense, rows) = gradient(with_tables(params, {}), gathered)
    touched = {name: _joined(TouchedRows(ids[name], rows[name])) for name in tables}
    return PartSums(with_tables(dense, {}), loss, count, overflows), touched


def common_sums(calls: CommonFusion, dense: Params, rows: Mapping[str, jax.Array], parts: Any) -> list[Any]:
    """What each layer's fusion sums over the targets of the whole batch; `rows` have an axis over parts in front."""
    known: list[Any] = []
    for _ in range(calls.num_layers):

        @jax.checkpoint
        def sums(part: Any, known: Sequence[Any] = tuple(known)) -> Partial:
            own, own_rows = part
            return calls.partial_sums(dense, own_rows, own, known)

        every = jax.lax.map(sums, (parts, rows))
        known = [*known, calls.over_devices(jax.tree.map(lambda each: each.sum(axis=0), every))]
    return known


def _joined(rows: TouchedRows) -> TouchedRows:
    return TouchedRows(rows.ids.reshape(-1), rows.gradients.reshape(-1, rows.gradients.shape[-1]))
