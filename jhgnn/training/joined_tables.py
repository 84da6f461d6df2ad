"""States whose learnable rows live on one device each, those of all node types in one array.

So a device has room for as many rows as the fullest one owns, whatever their types, and one exchange, one lazy update
and one capacity between two devices do for all of them.
"""

import functools
import operator
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jhgnn.nn.embeddings import tables_of, with_tables
from jhgnn.stores.device import map_mirrors
from jhgnn.training.parts import Parts

JOINED = "joined"
"""The one table's name in a state that is cut."""


class JoinedTables(Parts):
    """`Parts` whose `placement` is `Placement.joint`, of the types with learnable rows alone; tables are of one width.

    A node of any type has a number among those of all types: its id, beyond the nodes of the types before its own.
    """

    @functools.cached_property
    def starts(self) -> dict[str, int]:
        """The number of the first node of each type, in the order of the types."""
        sizes = [len(homes) for homes in self.placement.homes.values()]
        return dict(zip(self.placement.homes, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    @functools.cached_property
    def homes(self) -> np.ndarray:
        """Of each node by its number, int32: see `Placement`."""
        return np.concatenate([*self.placement.homes.values(), np.zeros(0, np.int32)])

    def by_type(self, tree: Any) -> Any:
        def mirror(own: Any) -> Any:
            return with_tables(own, dict.fromkeys(self.placement.homes, tables_of(own).get(JOINED)))

        return map_mirrors(mirror, tree)

    def from_types(self, tree: Any) -> Any:
        return self._mapped(lambda _, table: table, tree)

    def _stored(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Rows of a type stand where those of all others are zeros; shapes and specs of all are the same."""
        found = list(tables.values())
        alike = isinstance(found[0], jax.ShapeDtypeStruct | PartitionSpec)
        return {JOINED: found[0] if alike else functools.reduce(operator.add, found)}


def join(by_type: Mapping[str, jax.Array]) -> jax.Array:
    """Rows of all types, one type after the other."""
    return jnp.concatenate(list(by_type.values()))


def split(rows: jax.Array, sizes: Mapping[str, int]) -> dict[str, jax.Array]:
    """The rows of each type, which `join` put together; what is behind them is padding."""
    found, begin = {}, 0
    for node_type, size in sizes.items():
        found[node_type] = rows[begin : begin + size]
        begin += size
    return found
