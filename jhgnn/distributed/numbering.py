"""New ids: the nodes of a type stand by part, and within a part by their old id, so that a part owns a range."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jhgnn.distributed.assignment import Assignment


@dataclasses.dataclass(frozen=True, eq=False)
class Numbering:
    """Between the ids of a heterograph and those of its parts, for each node type.

    Attributes:
        original: node type -> int32 `[num_nodes]`, the old id of each new one.
        new: node type -> int32 `[num_nodes]`, the new id of each old one.
        offsets: node type -> int64 `[num_parts + 1]`; part p owns the new ids from `offsets[p]` to below
            `offsets[p + 1]`.
    """

    original: Mapping[str, np.ndarray]
    new: Mapping[str, np.ndarray]
    offsets: Mapping[str, np.ndarray]


def renumber(assignment: Assignment) -> Numbering:
    """The new ids that an assignment gives."""
    original, new, offsets = {}, {}, {}
    for node_type, owners in assignment.parts.items():
        order = np.argsort(owners, kind="stable").astype(np.int32)
        original[node_type] = order
        new[node_type] = np.empty_like(order)
        new[node_type][order] = np.arange(len(order), dtype=np.int32)
        offsets[node_type] = np.concatenate([[0], np.cumsum(assignment.counts(node_type))])
    return Numbering(original, new, offsets)


def owners_of(offsets: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The part that owns each new id, int32 `[n]`, from one type's `offsets`; -1 for an id below 0."""
    return np.where(ids < 0, -1, np.searchsorted(offsets, ids, side="right") - 1).astype(np.int32)
