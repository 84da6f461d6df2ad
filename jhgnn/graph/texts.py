"""Texts: many strings in one block of bytes, which NumPy can hash, compare and parse without a Python object each."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from jhgnn.errors import InputError

_BLOCK_BYTES, _BLOCK_TEXTS = 1 << 24, 1 << 18
_SHORT = 64
_MIX, _MIX_MORE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_INT64_DIGITS = 19


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """Strings in UTF-8: text `i` is `data[starts[i] : starts[i] + lengths[i]]`.

    `data` uint8 `[num_bytes]`, `starts` and `lengths` int64 `[num_texts]`, the lengths in bytes.
    """

    data: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> str:
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes().decode(errors="replace")

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> "Texts":
        return cls.from_encoded([text.encode() for text in strings])

    @classmethod
    def from_encoded(cls, encoded: list[bytes]) -> "Texts":
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def from_integers(cls, values: np.ndarray) -> "Texts":
        """Each integer as it is written: no leading zeros, no plus."""
        return cls.from_encoded(np.asarray(values, np.int64).astype("S21").tolist())

    def encoded(self) -> list[bytes]:
        if not len(self):
            return []
        first, last = int(self.starts.min()), int((self.starts + self.lengths).max())
        data, starts = self.data[first:last].tobytes(), self.starts - first
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + self.lengths).tolist(), strict=True)]

    def strings(self) -> np.ndarray:
        """As NumPy's strings of variable width (`StringDType`) `[num_texts]`."""
        result: np.ndarray = np.empty(len(self), dtype=np.dtypes.StringDType())
        for start in range(0, len(self), _BLOCK_TEXTS):  # Python's own strings take several times as much
            rows = slice(start, start + _BLOCK_TEXTS)
            result[rows] = [text.decode() for text in self.take(rows).encoded()]
        return result

    def take(self, rows: np.ndarray | slice) -> "Texts":
        return Texts(self.data, self.starts[rows], self.lengths[rows])

    def packed(self) -> "Texts":
        """The same texts in a block of their own, without the bytes between them."""
        parts = []
        for start in range(0, len(self), _BLOCK_TEXTS):
            part = self.take(slice(start, start + _BLOCK_TEXTS))
            width = int(part.lengths.max())
            if width <= _SHORT:
                parts.append(part.padded(max(1, width))[np.arange(max(1, width)) < part.lengths[:, None]])
            else:
                parts.append(np.frombuffer(b"".join(part.encoded()), np.uint8))
        return Texts(
            np.concatenate([np.zeros(0, np.uint8), *parts]), np.cumsum(self.lengths) - self.lengths, self.lengths
        )

    def padded(self, width: int) -> np.ndarray:
        """Bytes `[num_texts, width]`, uint8, zeros behind each text's end; no text may be longer."""
        data = self.data
        if len(self) and int(self.starts.max()) + width > len(data):
            data = np.concatenate([data, np.zeros(width, np.uint8)])
        if not len(self):
            return np.zeros((0, width), np.uint8)
        data = np.ascontiguousarray(data)
        windows: np.ndarray = np.ndarray((len(data) - width + 1,), f"S{width}", data, strides=(1,))
        rows = windows[self.starts].view(np.uint8).reshape(len(self), width)
        within = np.tril(np.full((width + 1, width), 0xFF, np.uint8), -1)
        rows &= within[self.lengths]
        return rows


def hashes(texts: Texts, seed: int = 0) -> np.ndarray:
    """A 64-bit hash of each text, uint64 `[num_texts]`, the same wherever the text stands."""
    result = np.empty(len(texts), np.uint64)
    for rows in _blocks(texts.lengths):
        part = texts.take(rows)
        width = _width(part.lengths)
        words = part.padded(width).view("<u8")
        mixed = mix(part.lengths.astype(np.uint64) + np.uint64(seed))
        for number in range(words.shape[1]):  # a word wholly behind the end does not count
            mixed = np.where(part.lengths > 8 * number, mix(mixed ^ words[:, number]), mixed)
        result[rows] = mixed
    return result


def mix(values: np.ndarray) -> np.ndarray:
    """Spreads every bit of uint64 values over all others."""
    mixed = values * _MIX
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX_MORE
    mixed ^= mixed >> np.uint64(29)
    return mixed


def same(first: Texts, second: Texts) -> np.ndarray:
    """Whether each text equals that of the same row in the other, booleans `[num_texts]`."""
    equal = first.lengths == second.lengths
    for rows in _blocks(first.lengths):
        rows = rows[equal[rows]]
        if len(rows):
            width = _width(first.lengths[rows])
            equal[rows] = (first.take(rows).padded(width) == second.take(rows).padded(width)).all(axis=1)
    return equal


def integers(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """The integers that texts write: (int64 `[num_texts]`, booleans: whether each is one).

    Only the one way to write an integer counts: no plus, no zeros before it, no space, and within 64 bits.
    """
    ok = (texts.lengths > 0) & (texts.lengths <= _INT64_DIGITS + 1)
    values = np.zeros(len(texts), np.int64)
    if not ok.any():
        return values, ok
    short = Texts(texts.data, texts.starts, np.where(ok, texts.lengths, 0))
    characters = short.padded(max(8, int(short.lengths.max()))).T
    negative = characters[0] == ord("-")
    digits = short.lengths - negative
    first = np.where(negative, characters[1], characters[0])
    ok &= (digits > 0) & ((first != ord("0")) | ((digits == 1) & ~negative))
    for position in range(int(short.lengths.max())):
        digit = characters[position] - np.uint8(ord("0"))  # below "0": wraps to more than 9
        here = short.lengths > position
        if position == 0:
            here &= ~negative
        ok &= ~here | (digit <= 9)
        values = np.where(here, values * 10 + digit, values)
    values = np.where(negative, -values, values)
    for row in np.flatnonzero(ok & (digits >= _INT64_DIGITS)).tolist():
        exact = int(texts[row])
        ok[row] = -(2**63) <= exact < 2**63
        values[row] = exact if ok[row] else 0
    return values, ok


def as_texts(keys: np.ndarray | Texts) -> Texts:
    """Integers or strings as texts.

    Raises:
        InputError: they are of another type.
    """
    if isinstance(keys, Texts):
        return keys
    if keys.dtype.kind in "iu":
        return Texts.from_integers(keys)
    if keys.dtype.kind not in "TUO" or not all(isinstance(key, str) for key in keys.tolist()):
        raise InputError(f"keys are {keys.dtype}; need integers or strings")
    return Texts.from_strings(keys.tolist())


def _width(lengths: np.ndarray) -> int:
    """A multiple of 8 bytes that holds the longest."""
    return max(8, -(-int(lengths.max()) // 8) * 8)


def _blocks(lengths: np.ndarray) -> Iterable[np.ndarray]:
    """Rows in pieces whose padded bytes stay small; long texts stand apart, so that they do not widen the others."""
    if not len(lengths):
        return
    for rows in (np.flatnonzero(lengths <= _SHORT), np.flatnonzero(lengths > _SHORT)):
        if len(rows):
            step = max(1, _BLOCK_BYTES // _width(lengths[rows]))
            for start in range(0, len(rows), step):
                yield rows[start : start + step]
