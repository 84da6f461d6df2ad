"""KeyIndex: from the keys of a node type to node numbers, for arrays of keys at a time."""

import numpy as np

from jhgnn.graph.texts import Texts, hashes, integers, mix, same

_DIRECT_SHARE = 8
"""A table over the whole range of integer keys is made where it has at most so many places a key."""


class RepeatedKeyError(ValueError):
    """Two nodes have one key: `first` and `second` are their numbers."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"nodes {first} and {second} have one key")
        self.first, self.second = first, second


class KeyIndex:
    """Finds the numbers of nodes by key. Keys are compared as text: the integer 12 and the string "12" are one key.

    Args:
        keys: integers `[num_nodes]`, or Texts.

    Raises:
        RepeatedKeyError: a key stands twice.
    """

    def __init__(self, keys: np.ndarray | Texts) -> None:
        self._keys = keys = keys if isinstance(keys, Texts) else np.asarray(keys, np.int64)
        self._direct: np.ndarray | None = None
        self._low = 0
        if isinstance(keys, Texts):
            self._seed = 0
            while not self._build(hashes(keys, self._seed)):
                self._seed += 1
        elif len(keys) and int(keys.max()) - int(keys.min()) < _DIRECT_SHARE * len(keys):
            self._low = int(keys.min())
            self._direct = np.full(int(keys.max()) - self._low + 1, -1, np.int32)
            self._direct[keys - self._low] = np.arange(len(keys), dtype=np.int32)
            repeated = np.flatnonzero(self._direct[keys - self._low] != np.arange(len(keys)))
            if len(repeated):
                again = np.flatnonzero(keys == keys[repeated[0]])
                raise RepeatedKeyError(int(again[0]), int(again[1]))
        else:
            self._build(mix(keys.view(np.uint64)))

    def find(self, keys: np.ndarray | Texts) -> np.ndarray:
        """Node numbers of keys, int32 `[num_keys]`; -1 where there is no such node."""
        if isinstance(keys, Texts):
            if isinstance(self._keys, Texts):
                hashed = hashes(keys, self._seed)
                found = self._hashed(hashed)
                known = np.flatnonzero(found >= 0)
                equal = same(keys.take(known), self._keys.take(found[known]))
                found[known[~equal]] = -1
                return found
            values, whole = integers(keys)
            return np.where(whole, self.find(values), np.int32(-1))
        keys = np.asarray(keys, np.int64)
        if isinstance(self._keys, Texts):
            return self.find(Texts.from_integers(keys))
        if self._direct is not None:
            inside = (keys >= self._low) & (keys - self._low < len(self._direct))
            return np.where(inside, self._direct[np.where(inside, keys - self._low, 0)], np.int32(-1))
        return self._hashed(mix(keys.view(np.uint64)))  # no two integers are mixed into one

    def _build(self, hashed: np.ndarray) -> bool:
        """Sorts the hashes, with a table of where those of each leading part begin; False: two texts share a hash."""
        order = np.argsort(hashed, kind="stable")
        hashed = hashed[order]
        for position in np.flatnonzero(hashed[1:] == hashed[:-1]).tolist():
            first, second = int(order[position]), int(order[position + 1])
            if not isinstance(self._keys, Texts) or self._keys[first] == self._keys[second]:
                raise RepeatedKeyError(first, second)
            return False
        bits = max(1, len(hashed).bit_length())
        self._shift = np.uint64(64 - bits)
        self._starts = np.searchsorted(hashed, np.arange(2**bits, dtype=np.uint64) << self._shift)
        self._order = order.astype(np.int32)
        self._sorted = np.append(hashed, np.uint64(2**64 - 1))
        return True

    def _hashed(self, wanted: np.ndarray) -> np.ndarray:
        """Numbers of the nodes whose keys have these hashes, or -1."""
        position = self._starts[(wanted >> self._shift).astype(np.int64)]
        behind = np.flatnonzero(self._sorted[position] < wanted)
        while len(behind):
            position[behind] += 1
            behind = behind[self._sorted[position[behind]] < wanted[behind]]
        inside = position < len(self._order)
        inside[inside] = self._sorted[position[inside]] == wanted[inside]
        found = np.full(len(wanted), -1, np.int32)
        found[inside] = self._order[position[inside]]
        return found
