"""Rows by node type, wherever they live: fixed features and learnable embeddings, on the host or on the devices.

A model and a step read rows through one interface and do not know where the rows are. `ShardedRows` is apart from the
two protocols: its rows are cut over devices, which fetch them together, for all types at once.
"""

from collections.abc import Collection
from typing import Any, Protocol, Self

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing


class RowStore(Protocol):
    """Rows of some node types."""

    @property
    def node_types(self) -> Collection[str]:
        """The types that have rows here."""
        ...

    def gather(self, node_type: str, ids: Array) -> Any:
        """Rows `[*ids.shape, width]` of int32 ids, dense or `SparseRows`.

        Where an id is -1 the row is padding, which may be anything; nothing may depend on it. Ids are not checked.
        """
        ...


class LearnableRowStore(RowStore, Protocol):
    """Rows that are learnt, each together with its optimizer state."""

    def apply(self, node_type: str, ids: Array, gradients: Array) -> Self:
        """The store after one update of the rows `ids`, int32 `[n]`, each at most once, -1 for none.

        An update is lazy, as in `torch.optim.SparseAdam`: rows that are not named keep their values and their optimizer
        state, and do not decay.
        """
        ...
