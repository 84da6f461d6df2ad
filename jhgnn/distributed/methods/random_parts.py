"""Random parts of equal size: each group of nodes dealt out in an order drawn by hash."""

import zlib

import numpy as np

from jhgnn.distributed.assignment import Assignment, strata
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.random.counter_hash import GOLDEN, mix


def random_assignment(graph: HeteroGraph, num_parts: int, seed: int = 0) -> Assignment:
    """Deals each group of `strata` out at random, so that parts own the same number of each to within one node."""
    parts = {}
    for node_type, groups in strata(graph).items():
        parts[node_type] = np.zeros(len(groups), np.int32)
        for group in np.unique(groups):
            ids = np.flatnonzero(groups == group)
            order = shuffled(len(ids), seed, f"{node_type}/{group}")
            # The first parts of one group would otherwise get every odd node of every group.
            start = int(mix(np.array([zlib.crc32(node_type.encode()) ^ int(group) ^ seed], np.uint32))[0])
            parts[node_type][ids[order]] = (np.arange(len(ids)) * num_parts // max(1, len(ids)) + start) % num_parts
    return Assignment(num_parts, parts, "random", seed)


def shuffled(count: int, seed: int, name: str) -> np.ndarray:
    """A permutation of `count` positions, int64, that depends on seed and name alone; of a bijective hash."""
    first = mix(np.array([seed ^ zlib.crc32(name.encode())], np.uint32))
    positions = np.arange(count, dtype=np.uint32)
    return np.argsort(mix(mix(positions ^ first) + np.uint32(GOLDEN)), kind="stable")
