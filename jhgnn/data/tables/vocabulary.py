"""Vocabulary: numbers for words as they come, and their final order."""

import numpy as np

from jhgnn.graph.texts import Texts, integers


class Vocabulary:
    """Words numbered in the order of their first appearance."""

    def __init__(self) -> None:
        self._number_of: dict[bytes, int] = {}

    def add(self, texts: Texts) -> np.ndarray:
        """The words' numbers, int32 `[num_texts]`; new ones get the next."""
        number_of = self._number_of
        return np.array([number_of.setdefault(text, len(number_of)) for text in texts.encoded()], np.int32)

    def __len__(self) -> int:
        return len(self._number_of)

    def words(self) -> list[str]:
        """In the order of their numbers."""
        return [word.decode() for word in self._number_of]

    def in_order(self) -> list[str]:
        """Ascending: by number where all are integers, else by text."""
        words = self.words()
        _, whole = integers(Texts.from_encoded(list(self._number_of)))
        return sorted(words, key=int) if whole.all() else sorted(words)


def renumbered(codes: np.ndarray, words: list[str], names: list[str] | tuple[str, ...]) -> np.ndarray:
    """Codes of `words` as positions in `names`, int32; -1 for what is not among them, and for -1."""
    position = {name: number for number, name in enumerate(names)}
    table = np.array([*(position.get(word, -1) for word in words), -1], np.int32)
    return table[codes]
