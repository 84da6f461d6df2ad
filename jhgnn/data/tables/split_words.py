"""Which split a word in a table names: `train`, `val` or `test`, and what others call them."""

import numpy as np

from jhgnn.data.tables.column import Column
from jhgnn.data.tables.values import Place, words
from jhgnn.data.tables.vocabulary import Vocabulary
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS

_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_SPLIT_OF = {word: split for split, words_of in _WORDS.items() for word in words_of}
NONE = -1


def split_codes(column: Column, name: str, place: Place) -> np.ndarray:
    """Position of each row's split in `SPLITS`, int8 `[num_rows]`; -1 for a row in none, which has no value.

    Raises:
        InputError: a word is none of those that name a split; its row is named.
    """
    vocabulary = Vocabulary()
    rows = np.flatnonzero(~column.missing)
    numbers = vocabulary.add(words(column, name, place).take(rows))
    code_of = [_code(word) for word in vocabulary.words()]
    codes = np.full(len(column), NONE, np.int8)
    codes[rows] = np.array([NONE if code is None else code for code in code_of], np.int8)[numbers] if code_of else NONE
    for number, code in enumerate(code_of):
        if code is None:
            row = int(rows[np.argmax(numbers == number)])
            word = vocabulary.words()[number]
            raise InputError(f"{place(row)}: {name} is {word!r}; need train, val or test, or nothing for neither")
    return codes


def _code(word: str) -> int | None:
    split = _SPLIT_OF.get(word.strip().lower())
    return None if split is None else SPLITS.index(split)
