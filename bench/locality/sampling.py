"""Hit rates of long traces from a spatial sample of their items (SHARDS: Waldspurger et al., FAST 2015)."""

import dataclasses

import numpy as np

from bench.locality.distances import stack_distances

_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclasses.dataclass(frozen=True)
class Reuses:
    """Reuse distances of a trace, of all of its items or of a sample.

    Attributes:
        distances: int64, in the unit of the sizes; `COLD` where there was no access before.
        sizes: of what was read.
        expected: the sizes that a sample is expected to read in all, or those of the whole trace.
    """

    distances: np.ndarray
    sizes: np.ndarray
    expected: float

    def hit_rate(self, cache: float) -> float:
        """Of what is read, the share that a cache of that size holds; 0 for an empty trace.

        A sample that reads more or less than expected has caught one hub more or less: the difference counts as hits,
        which is what hubs are (SHARDS-adj, section 3.2 of the paper).
        """
        if self.expected == 0:
            return 0.0
        missed = (self.distances < 0) | (self.distances + self.sizes > cache)
        return float(np.clip(1.0 - self.sizes[missed].sum() / self.expected, 0.0, 1.0))


def exact(items: np.ndarray, sizes: np.ndarray | None = None, *, repeated: bool = False) -> Reuses:
    """Of every access."""
    own = np.ones(len(items), np.int64) if sizes is None else np.asarray(sizes, np.int64)
    return Reuses(stack_distances(items, sizes, repeated=repeated), own, float(own.sum()))


def sampled(
    items: np.ndarray, rate: float, sizes: np.ndarray | None = None, *, seed: int = 0, repeated: bool = False
) -> Reuses:
    """Of about `rate` of the items, chosen by a hash, with all their accesses; distances are those of the whole trace.

    Raises:
        ValueError: the rate is not in (0, 1].
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate {rate} is not in (0, 1]")
    own = np.ones(len(items), np.int64) if sizes is None else np.asarray(sizes, np.int64)
    kept = chosen(np.asarray(items), rate, seed)
    found = stack_distances(np.asarray(items)[kept], None if sizes is None else own[kept], repeated=repeated)
    scaled = np.where(found < 0, found, np.rint(found / rate).astype(np.int64))
    return Reuses(scaled, own[kept], float(own.sum()) * rate)


def chosen(items: np.ndarray, rate: float, seed: int = 0) -> np.ndarray:
    """Which items belong to the sample, bool; the same item always does or never."""
    with np.errstate(over="ignore"):
        bits = items.astype(np.uint64) + np.uint64(seed + 1) * _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
        bits ^= bits >> np.uint64(31)
    return bits < np.uint64(min(int(rate * 2**64), 2**64 - 1))
