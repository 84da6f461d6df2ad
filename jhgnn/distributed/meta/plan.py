"""A plan of shards: which branches of the metatree each computes, and for which of a batch's targets."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.distributed.manifest import read_json, relation_from
from jhgnn.distributed.meta.tree import MetaTree, TreeNode
from jhgnn.distributed.meta.work import KINDS
from jhgnn.errors import InputError
from jhgnn.runtime.files import write_json

FORMAT, VERSION = "jhgnn-meta-plan", 1
TRAFFIC = ("partials", "frontiers", "rows", "weights")


@dataclasses.dataclass(frozen=True, order=True)
class Piece:
    """What a shard computes of one branch.

    Attributes:
        node: of the tree.
        low, high: the targets of a batch that it is for, by position: from `low` to below `high`.
        whole: with everything below the node; else the node alone, whose branches are pieces of their own.
    """

    node: int
    low: int
    high: int
    whole: bool = True

    @property
    def targets(self) -> int:
        return self.high - self.low

    def nodes(self, tree: MetaTree) -> tuple[int, ...]:
        """The tree's nodes that are computed."""
        return tree.subtree(self.node) if self.whole else (self.node,)

    def is_cut(self, tree: MetaTree) -> bool:
        """Whether what is below its node are pieces of their own."""
        return not self.whole and bool(tree.children(self.node))


@dataclasses.dataclass(frozen=True, eq=False)
class MetaPlan:
    """Attributes:
    tree: what is divided.
    batch_size: targets of a batch.
    shards: pieces of each shard; every node of the tree but the root is computed once for each target.
    row_owners: node type with learnable rows -> the one shard that keeps and updates them.
    work_s: float64 `[shards, 3]`, predicted seconds of each shard by `KINDS`.
    sent_bytes: kind of `TRAFFIC` -> float64 `[shards]`, predicted bytes that each shard sends a step.
    predicted_s: of a step: the slowest shard's work, and the exchange.
    considered: what else was predicted: in words, seconds.
    """

    tree: MetaTree
    batch_size: int
    shards: tuple[tuple[Piece, ...], ...]
    row_owners: Mapping[str, int]
    work_s: np.ndarray
    sent_bytes: Mapping[str, np.ndarray]
    predicted_s: float
    considered: tuple[tuple[str, float], ...] = ()

    @property
    def num_shards(self) -> int:
        return len(self.shards)

    @property
    def imbalance(self) -> float:
        """The heaviest shard's predicted work over the mean."""
        return imbalance(self.work_s.sum(axis=1))

    @property
    def bytes_a_step(self) -> float:
        """All bytes that are sent in a step, over all shards."""
        return float(sum(sent.sum() for sent in self.sent_bytes.values()))

    def nodes_of(self, shard: int) -> tuple[int, ...]:
        """The tree's nodes that a shard computes, for any target, ascending."""
        return tuple(sorted({node for piece in self.shards[shard] for node in piece.nodes(self.tree)}))


def imbalance(work: np.ndarray) -> float:
    """The largest over the mean, 1 where there is nothing."""
    return float(work.max() / work.mean()) if work.any() else 1.0


def check_covers(tree: MetaTree, batch_size: int, shards: Sequence[Sequence[Piece]]) -> None:
    """Raises InputError unless every node but the root is computed exactly once for every target."""
    computed = np.zeros((len(tree.nodes), batch_size), np.int16)
    for pieces in shards:
        for piece in pieces:
            if not 0 < piece.node < len(tree.nodes) or not 0 <= piece.low < piece.high <= batch_size:
                raise InputError(f"a shard has {piece}, which is not of a tree of {len(tree.nodes)} nodes")
            computed[list(piece.nodes(tree)), piece.low : piece.high] += 1
    wrong = np.argwhere(computed[1:] != 1)
    if len(wrong):
        node, target = int(wrong[0][0]) + 1, int(wrong[0][1])
        raise InputError(
            f"{tree.path(node)} is computed {computed[node, target]} times for target {target} of a batch; need once"
        )


def write_plan(plan: MetaPlan, path: str | Path) -> None:
    """Writes a plan as JSON, under a temporary name that is then renamed."""
    nodes = [
        [node.parent, None if node.relation is None else str(node.relation), node.node_type] for node in plan.tree.nodes
    ]
    content = {
        "format": FORMAT,
        "version": VERSION,
        "batch_size": plan.batch_size,
        "tree": nodes,
        "shards": [[dataclasses.asdict(piece) for piece in pieces] for pieces in plan.shards],
        "row_owners": dict(plan.row_owners),
        "work_s": plan.work_s.tolist(),
        "sent_bytes": {kind: sent.tolist() for kind, sent in plan.sent_bytes.items()},
        "predicted_s": plan.predicted_s,
        "considered": [list(entry) for entry in plan.considered],
    }
    write_json(Path(path).expanduser(), content)


def read_plan(path: str | Path) -> MetaPlan:
    """Reads a plan that `write_plan` wrote.

    Raises:
        InputError: the file is missing, of another format or version, an entry is wrong, or its shards do not compute
            every node once for every target.
    """
    path = Path(path).expanduser()
    content = read_json(path, "no plan is there")
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise InputError(
            f"{path} is of format {content.get('format')!r}, version {content.get('version')!r}; need {FORMAT!r},"
            f" version {VERSION}"
        )
    try:
        return _from_json(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{path}: {error}") from error
        raise InputError(f"{path}: entry missing or wrong: {json.dumps(str(error))}") from error


def _from_json(content: Mapping[str, Any]) -> MetaPlan:
    nodes: list[TreeNode] = []
    for number, (parent, relation, node_type) in enumerate(content["tree"]):
        if type(parent) is not int or not -1 <= parent < number or (parent < 0) != (number == 0):
            raise ValueError(f"node {number} of the tree has the parent {parent!r}")
        hop = 0 if parent < 0 else nodes[parent].hop + 1
        nodes.append(TreeNode(number, parent, hop, None if relation is None else relation_from(relation), node_type))
    tree, batch_size = MetaTree(tuple(nodes)), int(content["batch_size"])
    shards = tuple(tuple(Piece(**piece) for piece in pieces) for pieces in content["shards"])
    check_covers(tree, batch_size, shards)
    owners = {str(name): int(shard) for name, shard in content["row_owners"].items()}
    for name, shard in owners.items():
        if not 0 <= shard < len(shards):
            raise InputError(f"shard {shard} owns the rows of {name!r}, but there are {len(shards)} shards")
    return MetaPlan(
        tree=tree,
        batch_size=batch_size,
        shards=shards,
        row_owners=owners,
        work_s=np.array(content["work_s"], np.float64).reshape(len(shards), len(KINDS)),
        sent_bytes={kind: np.array(content["sent_bytes"][kind], np.float64) for kind in TRAFFIC},
        predicted_s=float(content["predicted_s"]),
        considered=tuple((str(words), float(seconds)) for words, seconds in content["considered"]),
    )
