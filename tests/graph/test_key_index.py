"""Texts and KeyIndex against Python's own strings and dictionaries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.errors import InputError
from jhgnn.graph import key_index
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.key_index import KeyIndex, RepeatedKeyError
from jhgnn.graph.texts import Texts, hashes, integers, same

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=90)
NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 40))
WRITTEN = st.one_of(
    NUMBERS.map(str), st.sampled_from(["007", "-0", "+1", " 1", "1 ", "1.0", "", "-", "9" * 19, "9" * 25])
)


@given(words=st.lists(WORDS, max_size=12), rows=st.lists(st.integers(0, 11), max_size=20))
def test_texts_are_the_strings_they_came_from(words, rows):
    texts = Texts.from_strings(words)
    assert [texts[row] for row in range(len(words))] == words
    assert texts.strings().tolist() == words
    chosen = [row for row in rows if row < len(words)]
    part = texts.take(np.array(chosen, np.int64))
    assert [text.decode() for text in part.encoded()] == [words[row] for row in chosen]
    np.testing.assert_array_equal(hashes(part), hashes(part.packed()))
    turned = Texts.from_strings(words[::-1])
    assert same(texts, turned).tolist() == [a == b for a, b in zip(words, words[::-1], strict=True)]


@given(words=st.lists(WRITTEN, max_size=20))
def test_integers_are_those_that_python_writes_in_the_same_way(words):
    def expected(word: str) -> int | None:
        try:
            number = int(word)
        except ValueError:
            return None
        return number if str(number) == word and -(2**63) <= number < 2**63 else None

    values, whole = integers(Texts.from_strings(words))
    assert [int(value) if ok else None for value, ok in zip(values, whole, strict=True)] == [*map(expected, words)]


@given(keys=st.lists(NUMBERS, unique=True, max_size=30), others=st.lists(NUMBERS, max_size=10))
def test_integer_keys_are_found_as_in_a_dictionary(keys, others):
    number_of = {key: number for number, key in enumerate(keys)}
    wanted = others + keys
    expected = [number_of.get(key, -1) for key in wanted]
    for index in (KeyIndex(np.array(keys, np.int64)), KeyIndex(Texts.from_integers(np.array(keys, np.int64)))):
        assert index.find(np.array(wanted, np.int64)).tolist() == expected
        assert index.find(Texts.from_strings(map(str, wanted))).tolist() == expected


@given(keys=st.lists(WORDS, unique=True, max_size=30), others=st.lists(WORDS, max_size=10))
def test_string_keys_are_found_as_in_a_dictionary(keys, others):
    number_of = {key: number for number, key in enumerate(keys)}
    wanted = others + keys
    index = KeyIndex(Texts.from_strings(keys))
    assert index.find(Texts.from_strings(wanted)).tolist() == [number_of.get(key, -1) for key in wanted]


def test_texts_with_one_hash_are_told_apart(monkeypatch):
    """The first seed gives all keys one hash; the second does not."""
    monkeypatch.setattr(
        key_index, "hashes", lambda texts, seed: hashes(texts, seed) if seed else np.zeros(len(texts), np.uint64)
    )
    index = KeyIndex(Texts.from_strings(["a", "b", "c"]))
    assert index.find(Texts.from_strings(["c", "b", "x"])).tolist() == [2, 1, -1]


@pytest.mark.parametrize("spread", [1, 10**9])
def test_a_key_that_stands_twice_is_named(spread):
    keys = np.array([4, 2, 9, 2, 5]) * spread
    for given_keys in (keys, Texts.from_integers(keys)):
        with pytest.raises(RepeatedKeyError) as caught:
            KeyIndex(given_keys)
        assert (caught.value.first, caught.value.second) == (1, 3)


def graph(**changes) -> HeteroGraph:
    return HeteroGraph.from_arrays(num_nodes={"paper": 3, "author": 2}, edges={}, **changes)


def test_nodes_are_found_by_key():
    keyed = graph(keys={"paper": np.array(["b", "a", "12"]), "author": np.array([70, 8])})
    assert keyed.node_ids("paper", ["12", "b"]).tolist() == [2, 0]
    assert keyed.node_ids("paper", np.array([12], np.int32)).tolist() == [2]
    assert keyed.node_ids("author", ["8", "70"]).tolist() == [1, 0]
    assert keyed.node_ids("author", []).tolist() == []
    assert graph().node_ids("paper", [2, 0]).tolist() == [2, 0]
    for ask, expected in (
        (lambda: keyed.node_ids("paper", ["c"]), "'c' is no key of node type 'paper' in 'graph'; its first is 'b'"),
        (lambda: keyed.node_ids("author", [9]), "'9' is no key"),
        (lambda: graph().node_ids("paper", [3]), "'3' is no key"),
        (lambda: keyed.node_ids("venue", [1]), "'venue' is not a node type"),
        (lambda: graph(keys={"paper": np.array(["a", "b", "a"])}), "key 'a' of 'paper' stands twice: nodes 0 and 2"),
        (lambda: graph(keys={"paper": np.array([1.5, 2, 3])}), "float64; need integers or strings"),
        (lambda: graph(keys={"paper": np.array([1, 2])}), r"shape \(2,\); need \(3,\)"),
        (lambda: graph(keys={"venue": np.array([1])}), "'venue'; known types: paper, author"),
        (lambda: graph(node_times={"paper": np.zeros(3)}), "float64 .*need 3 integers"),
        (lambda: graph(time_unit="s"), "time_unit is 's'"),
        (lambda: graph(class_names=["a"]), "1 names for 0 classes"),
    ):
        with pytest.raises(InputError, match=expected):
            ask()
