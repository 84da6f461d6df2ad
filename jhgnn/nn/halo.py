"""One device's share of a whole graph whose vertices are cut over an axis of the mesh: its own rows and a halo.

The halo of a device are the rows of others that its own vertices receive from. Before each layer all devices send each
other the rows that are in halos, in one `all_to_all` for all node types; the backward pass sends their gradients back
in another. What a layer makes are the device's own rows.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.graph.sampled import FrozenCounts
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.nn.block import Block
from jhgnn.ops.words import from_words, to_words

Array = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HaloInputs:
    """Features and edges of the vertices that a device keeps; see `jhgnn.distributed.halo` for how they are numbered.

    Attributes:
        features: own rows, `[rows, ...]` leaves, of each type that has features.
        graphs: relation or metapath -> its edges from own rows and halo to own rows.
        ids: node type -> int32 `[rows + halo]`, in the whole graph; -1 for padding.
        asked: node type -> int32 `[places, capacity]`, own rows that each device has in its halo; -1 for padding.
        row_of: target type -> int32 `[num_nodes]`, the row of each node on the device that keeps it.
        num_rows: own rows of each type.
        axis: of the mesh.
    """

    features: dict[str, Any]
    graphs: dict[str, SemanticGraph]
    ids: dict[str, Array]
    asked: dict[str, Array]
    row_of: dict[str, Array]
    num_rows: FrozenCounts = dataclasses.field(metadata={"static": True})
    axis: str = dataclasses.field(metadata={"static": True})

    def block(self, _hop: int, _num_nodes: Mapping[str, int]) -> Block:
        """The device's edges, the same for every layer."""
        targets = {name: self.ids[name][:count] >= 0 for name, count in self.num_rows.items}
        return Block(self.graphs, self.num_rows.as_dict(), self.ids, targets=targets)

    def table_rows(self, table: jax.Array, _node_type: str) -> jax.Array:
        """The device's rows of an embedding table, which are all that it has."""
        return table

    def rows_of(self, rows: jax.Array, node_type: str, ids: jax.Array) -> jax.Array:
        """Of what the last layer made, the rows of nodes that this device keeps; any row where an id is -1."""
        at = self.row_of[node_type].at[jnp.maximum(ids, 0)].get(mode="promise_in_bounds")
        return rows.at[at].get(mode="promise_in_bounds")

    def rows_read(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Own rows of each type with the halo's behind them, as a layer reads them."""
        met = [name for name in rows if self.asked[name].shape[1]]
        fixed = [name for name in met if rows[name] is self.features.get(name)]
        learnt = [name for name in met if name not in fixed]
        if not met:
            return dict(rows)
        sent: list[tuple[jax.Array, ...]] = []
        for names in (fixed, learnt):
            leaves = [(leaf, self.asked[name]) for name in names for leaf in jax.tree.leaves(rows[name])]
            sent.append(tuple(leaf.at[jnp.maximum(at, 0)].get(mode="promise_in_bounds") for leaf, at in leaves))
        came = iter([leaf for part in _exchanged(self.axis, *sent) for leaf in part])
        found = dict(rows)
        for name in [*fixed, *learnt]:
            found[name] = jax.tree.map(
                lambda own: jnp.concatenate([own, _flat(next(came))]),
                rows[name],
            )
        return found


def _flat(leaf: jax.Array) -> jax.Array:
    return leaf.reshape(-1, *leaf.shape[2:])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _exchanged(
    axis: str, fixed: tuple[jax.Array, ...], learnt: tuple[jax.Array, ...]
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """`[places, capacity, ...]` leaves whose row p goes to place p, whose row for this one comes; one collective.

    Only `learnt` leaves, which are floating, have gradients; they go back the same way, in one collective.
    """
    came = _sent(axis, [*fixed, *learnt])
    return tuple(came[: len(fixed)]), tuple(came[len(fixed) :])


def _sent(axis: str, leaves: Sequence[jax.Array]) -> list[jax.Array]:
    words = jax.lax.all_to_all(to_words(leaves), axis, 0, 0, tiled=True)
    return from_words(words, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])


def _forward(axis: str, fixed: Any, learnt: Any) -> tuple[Any, Any]:
    return _exchanged(axis, fixed, learnt), fixed


def _backward(axis: str, fixed: Any, cotangents: Any) -> tuple[Any, Any]:
    _, learnt = cotangents

    def nothing(leaf: jax.Array) -> Any:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.zeros_like(leaf) if floating else np.zeros(leaf.shape, jax.dtypes.float0)

    return jax.tree.map(nothing, fixed), tuple(_sent(axis, learnt)) if learnt else ()


_exchanged.defvjp(_forward, _backward)
