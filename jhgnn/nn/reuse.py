"""Rows of the first layer that were made before a step, which a mini-batch takes in the place of its own; their age.

A row is the layer's sum over a vertex's neighbours and relations. What follows the sum (the vertex's own part, bias,
norm and activation) needs no neighbour, so the step computes it with its own weights, and its gradient is whole. HAN's
row has a sum over neighbours for each metapath, side by side; what follows is bias, activation and the fusion, whose
weights depend on all targets of the batch.

Source: Ai et al., NeutronOrch (PVLDB 17(8)), whose results of hot vertices, before the activation, are these rows. Its
public code leaves them out of the gradient. Here, where rows are due in turn, each vertex is computed in one of the
batches of a super-batch, and its gradient there counts as often as there are batches.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jhgnn.nn.reduction import Partial, Reduce

Array = Any
UNMADE = -(2**30)
"""The version of a row that was never made: older than any bound."""

NOT_REUSED = -(2**31)
"""In the place of an age."""


@dataclasses.dataclass(frozen=True)
class ReusedRows:
    """What one layer takes over of a type's sums over neighbours, by the rows that it makes.

    `width` is that of the layer, as often as results stand side by side.

    Attributes:
        known: `[num_rows, width]`; not a number where a row is needed and too old.
        reused: bool `[num_rows]`: whose row is the known one.
        weights: float32 `[num_rows]`: how often the gradient of a row that is computed counts.
    """

    known: jax.Array
    reused: jax.Array
    weights: jax.Array

    def part(self, place: int, width: int) -> "ReusedRows":
        """One of several results that stand side by side in the rows, each `width` wide."""
        return dataclasses.replace(self, known=self.known[:, place * width : (place + 1) * width])

    def into(self, made: jax.Array) -> jax.Array:
        """The rows made, `[num_rows, width]`, with the known ones in the place of those that are reused.

        No gradient flows through a reused row. A value is what was made whatever its gradient's weight.
        """
        more = (self.weights - 1.0).astype(made.dtype)[:, None]
        weighted = made + more * (made - jax.lax.stop_gradient(made))
        known = jax.lax.stop_gradient(self.known).astype(made.dtype)
        return jnp.where(self.reused[:, None], known, weighted)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class KeptRows:
    """The first layer's sums over neighbours of a type's hot vertices, each with the version of its making. A pytree.

    Attributes:
        slots: int32 `[num_nodes]`: where each vertex's row stands, or -1.
        rows: `[hot, width]`.
        versions: int32 `[hot]`: how many updates the weights had seen that each row was made with, or `UNMADE`.
        every: batches of a super-batch, n.
        in_turn: whether the vertex in slot i is computed as any other in the batches whose number is i modulo n.
    """

    slots: Array
    rows: Array
    versions: Array
    every: int = dataclasses.field(metadata={"static": True})
    in_turn: bool = dataclasses.field(metadata={"static": True})

    def read(self, ids: jax.Array, number: jax.Array, step: jax.Array) -> ReusedRows:
        """What a batch takes over for the vertices `ids`, int32 `[num_rows]`, -1 for none.

        A row that is reused must have been made less than 2n updates ago, two super-batches: one that is older, or of
        a later version than the step's own, reads as not a number, which the update refuses.

        Args:
            number: uint32 scalar, the batch's, by which its neighbours were drawn.
            step: int32 scalar, updates done.
        """
        slots = jnp.where(ids >= 0, self.slots[jnp.maximum(ids, 0)], -1)
        hot, places = slots >= 0, jnp.maximum(slots, 0)
        turn = (number % self.every).astype(jnp.int32)
        due = hot & (places % self.every == turn) if self.in_turn else jnp.zeros_like(hot)
        age = step.astype(jnp.int32) - self.versions[places]
        young = (age >= 0) & (age < 2 * self.every)
        known = jnp.where(young[:, None], self.rows[places], jnp.nan)
        return ReusedRows(known, hot & ~due, jnp.where(due, float(self.every), 1.0))

    def ages(self, ids: jax.Array, number: jax.Array, step: jax.Array) -> jax.Array:
        """The ages in updates of the rows that a batch reuses, int32 `[num_rows]`; `NOT_REUSED` elsewhere."""
        slots = jnp.where(ids >= 0, self.slots[jnp.maximum(ids, 0)], -1)
        reused = self.read(ids, number, step).reused
        return jnp.where(reused, step.astype(jnp.int32) - self.versions[jnp.maximum(slots, 0)], NOT_REUSED)

    def with_rows(self, slots: jax.Array, rows: jax.Array, version: jax.Array) -> "KeptRows":
        """With other rows in some slots, int32 `[n]`, -1 for none, of one version."""
        where = jnp.where(slots >= 0, slots, self.rows.shape[0])
        made = self.rows.at[where].set(rows.astype(self.rows.dtype), mode="drop")
        return dataclasses.replace(self, rows=made, versions=self.versions.at[where].set(version, mode="drop"))


def with_reused(reused: Mapping[str, ReusedRows], reduce: Reduce) -> Reduce:
    """A reduction of a layer's sums over relations, `[num_rows, hidden]` by type, which takes known rows over."""

    def reduced(partial: Partial) -> dict[str, jax.Array]:
        sums = reduce(partial)
        return {name: reused[name].into(own) if name in reused else own for name, own in sums.items()}

    return reduced
