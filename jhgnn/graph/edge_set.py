"""EdgeSet: the edges of one relation, compressed by receiver."""

import dataclasses

import numpy as np

_BLOCK_EDGES = 1 << 22


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeSet:
    """The edges of one relation, compressed by receiver (in-edges CSR), senders ascending within a receiver.

    Parallel edges stay, in the order given. `indptr` int64 `[num_targets + 1]`, `senders` int32 `[num_edges]`,
    `weights` float32 `[num_edges]` or None, `times` int64 `[num_edges]` or None, `features` float32
    `[num_edges, width]` or None.
    """

    indptr: np.ndarray
    senders: np.ndarray
    weights: np.ndarray | None = None
    times: np.ndarray | None = None
    features: np.ndarray | None = None

    @property
    def num_edges(self) -> int:
        return len(self.senders)

    @property
    def num_targets(self) -> int:
        return len(self.indptr) - 1

    @property
    def receivers(self) -> np.ndarray:
        """Receivers, int32 `[num_edges]`, ascending."""
        return np.repeat(np.arange(self.num_targets, dtype=np.int32), np.diff(self.indptr))

    @classmethod
    def from_pairs(
        cls,
        senders: np.ndarray,
        receivers: np.ndarray,
        num_targets: int,
        weights: np.ndarray | None = None,
        times: np.ndarray | None = None,
        features: np.ndarray | None = None,
    ) -> "EdgeSet":
        """Compresses `[num_edges]` pairs in any order; ids must be in range already."""
        packed = np.array(receivers, np.int64)
        packed <<= 32
        packed |= np.asarray(senders, np.int64)
        return cls.from_packed(packed, num_targets, weights, times, features)

    @classmethod
    def from_packed(
        cls,
        packed: np.ndarray,
        num_targets: int,
        weights: np.ndarray | None = None,
        times: np.ndarray | None = None,
        features: np.ndarray | None = None,
    ) -> "EdgeSet":
        """Compresses pairs packed as `receiver << 32 | sender`, int64 `[num_edges]`, which are sorted in place.

        Without weights, times and features no second array of that size is made.
        """
        if weights is None and times is None and features is None:
            # One sort of packed pairs: 10 times as fast as lexsort on 7 M edges (0.21 s for 2.1 s).
            packed.sort()
        else:
            order = np.argsort(packed, kind="stable")
            weights = None if weights is None else np.asarray(weights, np.float32)[order]
            times = None if times is None else np.asarray(times, np.int64)[order]
            features = None if features is None else np.asarray(features, np.float32)[order]
            packed = packed[order]
        indptr = np.zeros(num_targets + 1, np.int64)
        for start in range(0, len(packed), _BLOCK_EDGES):  # bincount makes 64-bit copies of what it counts
            receivers = packed[start : start + _BLOCK_EDGES] >> 32
            first = int(receivers[0])
            counts = np.bincount(receivers - first)
            indptr[first + 1 : first + 1 + len(counts)] += counts
        np.cumsum(indptr, out=indptr)
        # The lower half of each pair is the sender.
        return cls(indptr, packed.astype(np.int32), weights, times, features)

    def reversed(self, num_sources: int) -> "EdgeSet":
        return EdgeSet.from_pairs(self.receivers, self.senders, num_sources, self.weights, self.times, self.features)

    def chosen(self, keep: np.ndarray) -> "EdgeSet":
        """The edges that a mask `[num_edges]` keeps."""
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)])[self.indptr]
        kept = (None if each is None else each[keep] for each in (self.weights, self.times, self.features))
        return EdgeSet(indptr, self.senders[keep], *kept)

    def joins_as(self, other: "EdgeSet") -> bool:
        """Whether both join the same pairs of nodes, weights aside."""
        return (
            self.num_edges == other.num_edges
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.senders, other.senders)
        )
