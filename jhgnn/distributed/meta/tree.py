"""The metatree: every way that a batch is sampled along, from the targets outwards, as a tree.

A node of the tree stands for (hop, relation, parent): the vertices that one draw reaches from those of its parent. Two
relations between the same types are two nodes, and a relation met on two ways is a node on each, so that a plan can say
exactly who computes what. What a layer makes of a vertex's own row is a node as well, without a relation.
"""

import dataclasses
from collections.abc import Sequence

from jhgnn.errors import InputError
from jhgnn.graph.schema import Metapath, Relation, Schema

MOST_NODES = 20_000
SELF = "self"


@dataclasses.dataclass(frozen=True)
class TreeNode:
    """Attributes:
    number: position in `MetaTree.nodes`; 0 is the root, the targets.
    parent: number of the parent, -1 for the root.
    hop: 0 for the root.
    relation: that it is drawn along, from its parent's vertices back to the senders; None for the root and `self`.
    node_type: of its vertices.
    """

    number: int
    parent: int
    hop: int
    relation: Relation | None
    node_type: str

    @property
    def name(self) -> str:
        return SELF if self.relation is None and self.parent >= 0 else str(self.relation or self.node_type)


@dataclasses.dataclass(frozen=True)
class MetaTree:
    """Nodes hop by hop, parents before children, children in the schema's order."""

    nodes: tuple[TreeNode, ...]

    @property
    def target(self) -> str:
        return self.nodes[0].node_type

    @property
    def num_hops(self) -> int:
        return max(node.hop for node in self.nodes)

    def children(self, number: int) -> tuple[int, ...]:
        return self._children[number]

    def subtree(self, number: int) -> tuple[int, ...]:
        """A node and all below it, ascending."""
        if number not in self._subtrees:
            found = [number]
            for node in found:
                found.extend(self.children(node))
            self._subtrees[number] = tuple(sorted(found))
        return self._subtrees[number]

    def steps(self, number: int) -> tuple[str, ...]:
        """The names of the nodes from the targets to this one, none for the root."""
        found: list[str] = []
        while number > 0:
            found.insert(0, self.nodes[number].name)
            number = self.nodes[number].parent
        return tuple(found)

    def path(self, number: int) -> str:
        """The way from the targets, such as `author:writes:paper / self`."""
        return " / ".join(self.steps(number)) or self.target

    def __post_init__(self) -> None:
        children: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes[1:]:
            children[node.parent].append(node.number)
        object.__setattr__(self, "_children", tuple(tuple(own) for own in children))

    _children: tuple[tuple[int, ...], ...] = dataclasses.field(init=False, repr=False, compare=False)
    _subtrees: dict[int, tuple[int, ...]] = dataclasses.field(
        init=False, repr=False, compare=False, default_factory=dict
    )


def tree_of_schema(schema: Schema, target: str, num_hops: int, *, self_loops: bool = True) -> MetaTree:
    """All relations into each type met, hop by hop; with `self_loops`, each layer reads a vertex's own row as well.

    Raises:
        InputError: an unknown target, no hop, no relation into the target, or more than `MOST_NODES` nodes.

    Source: Heta (Zhong et al., PVLDB 18(9)), metatree by breadth-first search; keyed by relation and not by end points.
    """
    if target not in schema.node_types:
        raise InputError(f"target {target!r} is not a node type; known: {', '.join(schema.node_types)}")
    if num_hops < 1:
        raise InputError(f"a metatree got {num_hops} hops; need at least 1")
    nodes = [TreeNode(0, -1, 0, None, target)]
    for parent in nodes:  # grows meanwhile
        if parent.hop == num_hops:
            continue
        into = [relation for relation in schema.relations if relation.target == parent.node_type]
        if parent.number == 0 and not into:
            raise InputError(f"no relation leads into the target {target!r}; set data.reverse_relations")
        steps: list[Relation | None] = [*([None] if self_loops else []), *into]
        for relation in steps:
            node_type = parent.node_type if relation is None else relation.source
            nodes.append(TreeNode(len(nodes), parent.number, parent.hop + 1, relation, node_type))
        _check_size(nodes)
    return MetaTree(tuple(nodes))


def tree_of_metapaths(metapaths: Sequence[Metapath]) -> MetaTree:
    """The union of metapaths, walked back from their common target type: what they share, they share as a branch.

    Raises:
        InputError: no metapaths, or of several target types.
    """
    targets = {metapath.target for metapath in metapaths}
    if len(targets) != 1:
        raise InputError(f"metapaths of a metatree end at {', '.join(sorted(targets)) or 'nothing'}; need one type")
    nodes = [TreeNode(0, -1, 0, None, targets.pop())]
    known: dict[tuple[int, Relation], int] = {}
    for metapath in metapaths:
        at = 0
        for relation in reversed(metapath.relations):
            if (at, relation) not in known:
                known[at, relation] = len(nodes)
                nodes.append(TreeNode(len(nodes), at, nodes[at].hop + 1, relation, relation.source))
                _check_size(nodes)
            at = known[at, relation]
    order = sorted(nodes, key=lambda node: (node.hop, node.number))
    renamed = {node.number: number for number, node in enumerate(order)} | {-1: -1}
    return MetaTree(
        tuple(
            dataclasses.replace(node, number=renamed[node.number], parent=renamed[node.parent]) for node in order
        )
    )  # fmt: skip


def _check_size(nodes: Sequence[TreeNode]) -> None:
    if len(nodes) > MOST_NODES:
        raise InputError(f"the metatree has over {MOST_NODES} nodes; use fewer layers, or metapaths")
