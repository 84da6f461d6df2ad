"""Rows in a device's memory, read and updated inside compiled programs."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.ops.table_rows import read_rows, write_rows
from jhgnn.stores.touched import take


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class DeviceRows:
    """A `RowStore` of fixed features: `[num_nodes, ...]` arrays or `SparseRows` by node type. A pytree."""

    tables: Mapping[str, Any]

    @property
    def node_types(self) -> Collection[str]:
        return self.tables.keys()

    def gather(self, node_type: str, ids: jax.Array) -> Any:
        """See `RowStore`; row 0 where an id is -1."""
        return jax.tree.map(lambda table: take(table, ids), self.tables[node_type])


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceTables:
    """A `LearnableRowStore` inside an update: tables with the optimizer state of their rows.

    Attributes:
        tables: `[num_nodes, width]` by node type.
        states: the optimizer's state of each table alone; parts of it, such as moments, have the table's shape.
        optimizer: updates some rows, with these rows of its state, as if they were a whole table.
        valid: bool scalar; where it is false, nothing changes.
        implementation: of `table_rows`.
    """

    tables: Mapping[str, jax.Array]
    states: Mapping[str, optax.OptState]
    optimizer: optax.GradientTransformationExtraArgs
    valid: jax.Array
    implementation: str = "xla"

    @classmethod
    def of(
        cls,
        params: Any,
        opt_state: Any,
        optimizer: optax.GradientTransformationExtraArgs,
        valid: jax.Array,
        implementation: str = "xla",
    ) -> "DeviceTables":
        """The embedding tables among a model's parameters, each with its part of their Optax state."""

        def alone(node_type: str) -> Any:
            return map_mirrors(lambda mirror: {node_type: tables_of(mirror)[node_type]}, opt_state)

        tables = tables_of(params)
        return cls(tables, {node_type: alone(node_type) for node_type in tables}, optimizer, valid, implementation)

    def into(self, params: Any, opt_state: Any) -> tuple[Any, Any]:
        """Adds the tables and their states to parameters and an optimizer state of dense weights alone."""
        states = [self.states[node_type] for node_type in self.tables]

        def joined(mirror: Any, *own: Any) -> Any:
            return with_tables(mirror, {name: part[name] for name, part in zip(self.tables, own, strict=True)})

        return with_tables(params, self.tables), map_mirrors(joined, opt_state, *states)

    @property
    def node_types(self) -> Collection[str]:
        return self.tables.keys()

    def gather(self, node_type: str, ids: jax.Array) -> jax.Array:
        """See `RowStore`; `ids` are int32 `[n]`."""
        return read_rows(self.tables[node_type], ids, implementation=self.implementation)

    def apply(self, node_type: str, ids: jax.Array, gradients: jax.Array) -> "DeviceTables":
        """See `LearnableRowStore`; in place where tables and states are donated."""
        table, state = self.tables[node_type], self.states[node_type]
        present = (ids >= 0)[:, None]

        def read(leaf: jax.Array) -> jax.Array:
            """Zeros where there is no row, which LAMB's norms over the rows would count."""
            return jnp.where(present, read_rows(leaf, ids, implementation=self.implementation), 0)

        def written(leaf: jax.Array, rows: jax.Array) -> jax.Array:
            return write_rows(leaf, ids, rows, implementation=self.implementation)

        def mirrors(leaf: jax.Array) -> bool:
            return leaf.shape == table.shape

        rows = read(table)
        of_rows = jax.tree.map(lambda leaf: read(leaf) if mirrors(leaf) else leaf, state)
        updates, new = self.optimizer.update({node_type: gradients}, of_rows, {node_type: rows}, valid=self.valid)
        made = jnp.where(self.valid, rows + updates[node_type], rows)
        state = jax.tree.map(lambda leaf, rows: written(leaf, rows) if mirrors(leaf) else rows, state, new)
        return dataclasses.replace(
            self,
            tables=dict(self.tables) | {node_type: written(table, made)},
            states=dict(self.states) | {node_type: state},
        )


def without_tables(opt_state: Any) -> Any:
    """An Optax state of all parameters without the parts of the embedding tables."""
    return map_mirrors(lambda mirror: with_tables(mirror, {}), opt_state)


def map_mirrors(function: Any, tree: Any, *rest: Any, others: Any = None) -> Any:
    """Maps what mirrors the parameters in an Optax state, or a state of training, which are its dictionaries.

    What is no dictionary, such as counters, stays the first tree's, or is what `others` makes of it.
    """

    def mapped(node: Any, *more: Any) -> Any:
        if isinstance(node, dict):
            return function(node, *more)
        return node if others is None else others(node)

    return jax.tree.map(mapped, tree, *rest, is_leaf=lambda node: isinstance(node, dict))
