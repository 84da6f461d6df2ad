"""Random draws that are the same on every machine, platform and NumPy version.

NumPy guarantees the raw stream of a bit generator for good (NEP 19), but not what `Generator` makes of it, and libm
differs in the last bit between machines. So bounded integers, permutations and near-normal numbers are made here,
from raw 64-bit draws and arithmetic that IEEE 754 rounds exactly (+, *, / and square roots).
"""

import zlib

import numpy as np


class Draws:
    """One PCG64 stream, named by a seed and a path: drawing more from one stream never changes another."""

    def __init__(self, seed: int, path: str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(path.encode())]))

    def words(self, size: int) -> np.ndarray:
        """Uniform uint64 `[size]` below 2**32."""
        return self._bits.random_raw(size) >> np.uint64(32)

    def below(self, bound: np.ndarray | int, size: int) -> np.ndarray:
        """Uniform int64 `[size]` in [0, bound); `bound` is at least 1, at most 2**31, one number or `[size]`.

        Multiply and shift; its bias, below bound / 2**32, does not matter here.
        """
        return ((self.words(size) * np.asarray(bound, np.uint64)) >> np.uint64(32)).astype(np.int64)

    def chance(self, probability: float, size: int) -> np.ndarray:
        """Bool `[size]`, each True with this probability."""
        return self.words(size) < np.uint64(int(probability * 2.0**32))

    def permutation(self, size: int) -> np.ndarray:
        """A uniform permutation of 0 to size - 1, int64."""
        return np.argsort(self._bits.random_raw(size), kind="stable")

    def near_normal(self, rows: int, width: int) -> np.ndarray:
        """Float32 `[rows, width]` of mean 0 and variance 1, in steps of 1/148 and within +-3.5.

        The sum of four bytes (an Irwin-Hall variable), so that no logarithm or cosine is needed.
        """
        words = self._bits.random_raw(-(-rows * width // 2))
        pairs = (words & np.uint64(0x00FF00FF00FF00FF)) + ((words >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF))
        fours = (pairs + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        sums = fours.astype("<u8", copy=False).view("<u4").astype(np.float32)
        sums -= np.float32(510.0)
        sums *= np.float32(1.0 / 147.8)  # the standard deviation of the sum is sqrt(4 (256**2 - 1) / 12)
        return sums[: rows * width].reshape(rows, width)


def zipf_weights(count: int, skew: float, total: int = 2**31) -> np.ndarray:
    """Whole weights of ranks 0, 1, ...: about (rank + 1) ** -skew, int64 `[count]`, each at least 1, sum near `total`.

    Sampling in proportion to them gives degrees with a power-law tail of exponent 1 + 1 / skew. `skew` is a multiple
    of 1/8, 0 for equal weights: such powers are products of square roots, which every machine rounds alike.
    """
    eighths = round(skew * 8)
    if eighths != skew * 8 or eighths < 0:
        raise ValueError(f"skew {skew} is not a multiple of 1/8")
    root = np.sqrt(np.sqrt(np.sqrt(np.arange(1, count + 1, dtype=np.float64))))
    power = np.ones(count)
    for _ in range(eighths):
        power *= root
    weights = 1.0 / power
    # cumsum adds in order, where np.sum may add in blocks that depend on the machine's vectors.
    scale = (total - count) / float(np.cumsum(weights)[-1]) if count else 0.0
    return np.maximum(1, (weights * scale).astype(np.int64))


def apportion(total: int, weights: np.ndarray) -> np.ndarray:
    """Splits `total` in proportion to whole `weights`, by largest remainder; int64, sums to `total` exactly."""
    if len(weights) == 0:
        return np.zeros(0, np.int64)
    whole = int(weights.sum())
    shares, remainders = np.divmod(total * weights.astype(np.int64), whole)
    missing = total - int(shares.sum())
    shares[np.argsort(-remainders, kind="stable")[:missing]] += 1
    return shares
