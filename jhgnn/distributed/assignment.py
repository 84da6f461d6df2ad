"""Which part owns each node, and the groups of nodes that a partition keeps balanced."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, HeteroGraph

MAX_PARTS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
    """The owner of every node.

    Attributes:
        num_parts: how many parts there are; some may own nothing.
        parts: node type -> int32 `[num_nodes]`, from 0 to `num_parts - 1`.
        method: how it was found, as reports name it.
        seed: of the method.

    Raises:
        InputError: `num_parts` is out of range, or a node has an owner that is no part.
    """

    num_parts: int
    parts: Mapping[str, np.ndarray]
    method: str
    seed: int = 0

    def __post_init__(self) -> None:
        check_num_parts(self.num_parts)
        for node_type, parts in self.parts.items():
            bad = (parts < 0) | (parts >= self.num_parts)
            if bad.any():
                node = int(np.argmax(bad))
                raise InputError(
                    f"{node_type} {node} is assigned to part {int(parts[node])}; need 0 to {self.num_parts - 1}"
                )

    def counts(self, node_type: str) -> np.ndarray:
        """Nodes of a type in each part, int64 `[num_parts]`."""
        return np.bincount(self.parts[node_type], minlength=self.num_parts)

    def check(self, graph: HeteroGraph) -> None:
        """Raises InputError unless every node of the graph has an owner, and nothing else has."""
        if set(self.parts) != set(graph.num_nodes):
            raise InputError(
                f"the assignment is of the types {', '.join(self.parts)}; the graph has {', '.join(graph.num_nodes)}"
            )
        for node_type, count in graph.num_nodes.items():
            if len(self.parts[node_type]) != count:
                raise InputError(
                    f"the assignment has {len(self.parts[node_type])} nodes of type {node_type!r};"
                    f" the graph has {count}"
                )


def check_num_parts(num_parts: int) -> None:
    """Raises InputError unless the number of parts is from 1 to `MAX_PARTS`."""
    if not 1 <= num_parts <= MAX_PARTS:
        raise InputError(f"the number of parts is {num_parts}; need 1 to {MAX_PARTS}")


def strata(graph: HeteroGraph) -> dict[str, np.ndarray]:
    """The groups that each part should own an equal share of: node type -> int8 `[num_nodes]`.

    Nodes of the target type are numbered by split, 1 for `train`, 2 for `val`, 3 for `test`, and 0 for those of none;
    all nodes of another type are one group, 0.
    """
    groups = {node_type: np.zeros(count, np.int8) for node_type, count in graph.num_nodes.items()}
    if graph.target is not None:
        for number, split in enumerate(SPLITS, start=1):
            if split in graph.splits:
                groups[graph.target][graph.splits[split]] = number
    return groups
