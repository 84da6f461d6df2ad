"""SemanticGraph: one relation or metapath graph as kernels see it, both directions compressed.

On the host its arrays are NumPy; `place` moves them to a device. It is a pytree, so it is always an argument of a
compiled function: a graph closed over by `jax.jit` becomes a constant that XLA spends minutes folding.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np
from scipy import sparse

from jhgnn.errors import InputError
from jhgnn.graph.degree_buckets import BothBuckets, degree_buckets

Array = Any  # np.ndarray on the host, jax.Array on a device or under tracing

VIEWS = ("coo", "adjacency", "buckets")
"""What an implementation may need beyond the two compressed directions."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Csr:
    """Compressed rows: the neighbours of row i are `indices[indptr[i]:indptr[i + 1]]`, ascending; int32."""

    indptr: Array  # [num_rows + 1]
    indices: Array  # [num_edges]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Coo:
    """The endpoint that `Csr` leaves implicit, for implementations made of segment sums; int32 `[num_edges]` each."""

    receivers: Array  # of incoming.indices, ascending
    senders: Array  # of outgoing.indices, ascending
    incoming_position: Array  # of each out-edge: where the same edge stands among the in-edges


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SemanticGraph:
    """Edges from `num_sources` senders to `num_targets` receivers.

    Attributes:
        incoming: rows are receivers, indices are senders.
        outgoing: rows are senders, indices are receivers: the same edges, so that no backward pass needs a scatter.
        coo: explicit endpoints, or None where no chosen implementation reads them.
        adjacency: uint8 `[num_targets, num_sources]` edge multiplicities, or None likewise.
        name: the metapath or relation, used in named scopes and reports.
        buckets: receivers by in-degree and senders by out-degree, or None likewise.
        sender_ids, receiver_ids: int32 `[num_sources]` and `[num_targets]`, by which dropout knows the vertices of a
            part of a larger graph; None: by their numbers.
        message_weights: floating `[num_edges]` in the order of `incoming`, by which each edge's message is multiplied
            after its mean's or softmax's share of it is known; None: by one. Explanations ask for gradients of them.
            Implementations that do not read them refuse such a graph.
    """

    incoming: Csr
    outgoing: Csr
    coo: Coo | None
    adjacency: Array | None
    num_sources: int = dataclasses.field(metadata={"static": True})
    num_targets: int = dataclasses.field(metadata={"static": True})
    name: str = dataclasses.field(default="", metadata={"static": True})
    sender_ids: Array | None = None
    receiver_ids: Array | None = None
    buckets: BothBuckets | None = None
    message_weights: Array | None = None

    @property
    def num_edges(self) -> int:
        return int(self.incoming.indices.shape[0])

    @property
    def density(self) -> float:
        """Share of the `num_targets * num_sources` pairs that are edges; 0 where there are no pairs."""
        return self.num_edges / max(1, self.num_targets * self.num_sources)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays; those that both directions of a symmetric graph share count once."""
        return sum({id(leaf): leaf.nbytes for leaf in jax.tree.leaves(self)}.values())

    @classmethod
    def from_pairs(
        cls, senders: np.ndarray, receivers: np.ndarray, num_sources: int, num_targets: int, name: str = ""
    ) -> "SemanticGraph":
        """Compresses `[num_edges]` pairs on the host; parallel edges stay.

        Raises:
            InputError: an id is out of range, or there are 2**31 edges or more.
        """
        senders, receivers = np.asarray(senders, np.int64), np.asarray(receivers, np.int64)
        for ids, count, what in ((senders, num_sources, "sender"), (receivers, num_targets, "receiver")):
            if ids.size and (ids.min() < 0 or ids.max() >= count):
                raise InputError(f"semantic graph {name!r} has a {what} outside 0 to {count - 1}")
        order = np.lexsort((senders, receivers))
        return cls.from_incoming(_indptr(receivers, num_targets), senders[order], num_sources, name)

    @classmethod
    def from_incoming(
        cls, indptr: np.ndarray, senders: np.ndarray, num_sources: int, name: str = ""
    ) -> "SemanticGraph":
        """From in-edges compressed by receiver, trusted: `indptr` `[num_targets + 1]`, `senders` `[num_edges]`.

        Raises:
            InputError: there are 2**31 edges or more.
        """
        num_edges, num_targets = len(senders), len(indptr) - 1
        if num_edges >= 2**31:
            raise InputError(f"semantic graph {name!r} has {num_edges:,} edges; kernels index with int32, below 2**31")
        incoming = Csr(np.asarray(indptr, np.int32), np.asarray(senders, np.int32))
        outgoing_indptr, receivers, _ = _columns(incoming, num_sources, np.ones(num_edges, bool))
        return cls(
            incoming=incoming,
            outgoing=Csr(outgoing_indptr, receivers),
            coo=None,
            adjacency=None,
            num_sources=num_sources,
            num_targets=num_targets,
            name=name,
        )

    def with_views(self, views: Collection[str]) -> "SemanticGraph":
        """Adds, on the host, the named `VIEWS` and drops the others.

        Raises:
            InputError: the adjacency is asked for and two nodes are joined by over 255 parallel edges.
        """
        coo = adjacency = None
        if "coo" in views:
            _, _, incoming_position = _columns(
                self.incoming, self.num_sources, np.arange(self.num_edges, dtype=np.int32)
            )
            coo = Coo(
                receivers=_rows(self.incoming.indptr),
                senders=_rows(self.outgoing.indptr),
                incoming_position=incoming_position,
            )
        if "adjacency" in views:
            flat = _rows(self.incoming.indptr).astype(np.int64) * self.num_sources + self.incoming.indices
            counts = np.zeros(self.num_targets * self.num_sources, np.uint8)
            counts[flat] = 1
            if (flat[1:] == flat[:-1]).any():  # ascending, so parallel edges stand together
                positions, multiplicities = np.unique(flat, return_counts=True)
                if multiplicities.max() > 255:
                    raise InputError(
                        f"semantic graph {self.name!r} joins two nodes by {multiplicities.max()} parallel edges;"
                        " the dense implementation counts to 255: choose another one"
                    )
                counts[positions] = multiplicities
            adjacency = counts.reshape(self.num_targets, self.num_sources)
        buckets = None
        if "buckets" in views:
            forwards = degree_buckets(self.incoming.indptr)
            mirrored = self.outgoing is self.incoming
            buckets = BothBuckets(forwards, forwards if mirrored else degree_buckets(self.outgoing.indptr))
        return dataclasses.replace(self, coo=coo, adjacency=adjacency, buckets=buckets)

    def place(self, views: Collection[str], device: jax.Device | None = None) -> "SemanticGraph":
        """The graph with these `VIEWS` as arrays on a device; a symmetric graph's directions share theirs there too."""
        leaves, structure = jax.tree.flatten(self.with_views(views))
        by_array = jax.device_put({id(leaf): leaf for leaf in leaves}, device)
        placed: SemanticGraph = jax.tree.unflatten(structure, [by_array[id(leaf)] for leaf in leaves])
        return dataclasses.replace(placed, outgoing=placed.incoming) if self.outgoing is self.incoming else placed


def _indptr(ids: np.ndarray, count: int) -> np.ndarray:
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(ids, minlength=count), out=indptr[1:])
    return indptr


def _columns(rows: Csr, num_columns: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed by column: (indptr, row indices, values `[num_edges]` moved along), rows ascending, all int32.

    SciPy's conversion is a counting sort: stable, so parallel edges keep their order, and linear, where `np.argsort` of
    5 million edges takes 5 times as long (measured on DBLP APVPA).
    """
    matrix = sparse.csr_array((values, rows.indices, rows.indptr), shape=(len(rows.indptr) - 1, num_columns))
    columns = matrix.tocsc()
    return np.asarray(columns.indptr, np.int32), np.asarray(columns.indices, np.int32), columns.data


def _rows(indptr: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
