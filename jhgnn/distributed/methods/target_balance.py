"""Evening out the targets of a partition: surplus ones move to where the fewest further edges are cut."""

import dataclasses

import numpy as np
from scipy import sparse

from jhgnn.distributed.adjacency import Adjacency
from jhgnn.distributed.assignment import Assignment, strata
from jhgnn.distributed.methods.capacity import choose_with_room, fair_room
from jhgnn.graph.hetero_graph import HeteroGraph


def balance_targets(
    assignment: Assignment, graph: HeteroGraph, joined: Adjacency, tolerance: float = 1.05
) -> Assignment:
    """Moves target nodes until no part owns more than `tolerance` times an equal share of any split.

    For each split, and for the targets of none, nodes leave the parts that own too many of them, those first whose
    neighbours give them the least reason to stay. Other types keep their owners. A graph without a target is returned
    as it is.
    """
    if graph.target is None:
        return assignment
    num_parts = assignment.num_parts
    parts = {node_type: owners.copy() for node_type, owners in assignment.parts.items()}
    owners = parts[graph.target]
    groups = strata(graph)[graph.target]
    for group in np.unique(groups):
        ids = np.flatnonzero(groups == group)
        room = fair_room(len(ids), num_parts, tolerance) - np.bincount(owners[ids], minlength=num_parts)
        if (room >= 0).all():
            continue
        all_owners = np.concatenate([parts[node_type] for node_type in joined.first])
        leaving = [
            _least_attached(ids[owners[ids] == part], joined, graph.target, all_owners, room, int(-room[part]))
            for part in np.flatnonzero(room < 0)
        ]
        moved = np.concatenate(leaving)
        scores = votes(joined.rows(graph.target, moved), all_owners, num_parts)
        scores[:, room < 0] = -1.0  # below every vote
        owners[moved] = choose_with_room(scores, np.maximum(room, 0))
    return dataclasses.replace(assignment, parts=parts)


def votes(rows: sparse.csr_array, owners: np.ndarray, num_parts: int) -> np.ndarray:
    """How many edges join each row's node to each part, float32 `[n, num_parts]`."""
    columns = owners[rows.indices]
    row = np.repeat(np.arange(rows.shape[0], dtype=np.int64), np.diff(rows.indptr))
    counted = np.bincount(row * num_parts + columns, weights=rows.data, minlength=rows.shape[0] * num_parts)
    return counted.reshape(rows.shape[0], num_parts).astype(np.float32)


def _least_attached(
    ids: np.ndarray, joined: Adjacency, target: str, owners: np.ndarray, room: np.ndarray, count: int
) -> np.ndarray:
    """The `count` nodes of one part that lose the fewest joined edges where they go to their best part with room."""
    scores = votes(joined.rows(target, ids), owners, len(room))
    here = owners[joined.first[target] + ids[0]]
    loss = scores[:, here] - np.where(room > 0, scores, -np.inf).max(axis=1)
    return ids[np.argsort(loss, kind="stable")[:count]]
