"""Which rows of a table are read or written."""

import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class RowIds:
    """Rows of a table by number: `ids` int32 `[n]`, -1 for none."""

    ids: jax.Array
