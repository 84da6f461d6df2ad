"""Pieces of branches that are cut deeper, for the same targets wherever a node and what is below it are computed."""

import dataclasses
import itertools
from collections.abc import Sequence

from jhgnn.distributed.meta.plan import Piece
from jhgnn.distributed.meta.tree import MetaTree


def with_equal_ranges(tree: MetaTree, shards: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    """The pieces of each shard, those of a branch of the targets that is cut split where any of them begins or ends.

    So whoever computes a node that is cut meets pieces below it that are for its own targets, no more and no fewer.
    Pieces of whole branches stay as they are.
    """
    borders: dict[int, set[int]] = {}
    for piece in (piece for pieces in shards for piece in pieces):
        if not _is_whole_branch(tree, piece):
            borders.setdefault(_branch(tree, piece.node), set()).update((piece.low, piece.high))

    def split(piece: Piece) -> list[Piece]:
        if _is_whole_branch(tree, piece):
            return [piece]
        of_branch = borders[_branch(tree, piece.node)]
        inside = sorted(border for border in of_branch if piece.low <= border <= piece.high)
        return [dataclasses.replace(piece, low=low, high=high) for low, high in itertools.pairwise(inside)]

    return [[part for piece in pieces for part in split(piece)] for pieces in shards]


def _is_whole_branch(tree: MetaTree, piece: Piece) -> bool:
    """Whether it is of a branch of the targets, with everything below."""
    return tree.nodes[piece.node].parent == 0 and not piece.is_cut(tree)


def _branch(tree: MetaTree, node: int) -> int:
    """The branch of the targets that a node is of."""
    while (parent := tree.nodes[node].parent) > 0:
        node = parent
    return node
