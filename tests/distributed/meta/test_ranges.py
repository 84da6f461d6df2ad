"""Ranges of targets of the pieces of a branch that is cut: those of a node are those of what is below it."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.distributed.meta.plan import Piece, check_covers
from jhgnn.distributed.meta.ranges import with_equal_ranges
from jhgnn.distributed.meta.tree import tree_of_schema
from jhgnn.graph.schema import Relation, Schema

TREE = tree_of_schema(Schema(("a", "b"), (Relation("b", "r", "a"), Relation("a", "s", "b"))), "a", 3)
BATCH, SHARDS = 16, 3


@st.composite
def plans(draw: st.DrawFn) -> list[list[Piece]]:
    """Nodes cut or whole, each divided among some shards at random borders."""
    shards: list[list[Piece]] = [[] for _ in range(SHARDS)]
    waiting = list(TREE.children(0))
    for node in waiting:
        cut = bool(TREE.children(node)) and draw(st.booleans())
        waiting.extend(TREE.children(node) if cut else ())
        borders = sorted({0, *draw(st.lists(st.integers(1, BATCH - 1), max_size=2)), BATCH})
        for low, high in itertools.pairwise(borders):
            shards[draw(st.integers(0, SHARDS - 1))].append(Piece(node, low, high, whole=not cut))
    return shards


@given(plans())
def test_a_node_and_what_is_below_it_are_for_the_same_targets(shards):
    found = with_equal_ranges(TREE, shards)
    check_covers(TREE, BATCH, found)
    ranges: dict[int, set[tuple[int, int]]] = {}
    for piece in (piece for pieces in found for piece in pieces):
        ranges.setdefault(piece.node, set()).add((piece.low, piece.high))
    for node in ranges:
        parent = TREE.nodes[node].parent
        assert parent == 0 or ranges[parent] == ranges[node]


@given(plans())
def test_each_shard_keeps_the_targets_that_it_had(shards):
    for before, after in zip(shards, with_equal_ranges(TREE, shards), strict=True):
        np.testing.assert_array_equal(held(before), held(after))


def test_whole_branches_stay_as_they_are():
    branches = TREE.children(0)
    shards = [[Piece(branches[0], 0, 5), Piece(branches[1], 0, BATCH)], [Piece(branches[0], 5, BATCH)]]
    assert with_equal_ranges(TREE, shards) == shards


def held(pieces: list[Piece]) -> np.ndarray:
    """How often each node alone is computed for each target."""
    found = np.zeros((len(TREE.nodes), BATCH), int)
    for piece in pieces:
        found[list(piece.nodes(TREE)), piece.low : piece.high] += 1
    return found
