"""METIS through `pymetis`: the fewest edges between parts that its multilevel k-way heuristic finds."""

import importlib
from typing import Any

import numpy as np

from jhgnn.distributed.adjacency import Adjacency
from jhgnn.distributed.assignment import Assignment
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph

HOW_TO_GET_IT = "pip install 'jhgnn[partition]' (or pymetis)"
UNEVEN = 30
"""METIS' `ufactor`: parts may weigh up to 1.030 times the mean."""


def metis_assignment(graph: HeteroGraph, joined: Adjacency, num_parts: int, seed: int = 0) -> Assignment:
    """Cuts few edges, each counted as often as it joins two nodes; nodes weigh 1, training nodes as much as all others.

    METIS as `pymetis` builds it balances one weight. Training nodes get half of all weight, so that parts come near an
    equal share of both; `balance_targets` does the rest.

    Raises:
        InputError: `pymetis` is not installed.

    Source: Karypis and Kumar, A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, 1998.
    """
    pymetis = _pymetis()
    names, counts = list(graph.num_nodes), np.array(list(graph.num_nodes.values()))
    if num_parts == 1 or joined.matrix.nnz == 0:
        flat = np.arange(counts.sum(), dtype=np.int64) * num_parts // max(1, int(counts.sum()))
    else:
        index = pymetis.zero_copy_dtype()
        weights = joined.matrix.data
        neighbors = pymetis.CSRAdjacency(joined.matrix.indptr.astype(index), joined.matrix.indices.astype(index))
        _, flat = pymetis.part_graph(
            num_parts,
            neighbors,
            vweights=_node_weights(graph, joined).astype(index),
            eweights=None if (weights == 1).all() else weights.astype(index),
            recursive=False,
            options=pymetis.Options(seed=seed % 2**31, ufactor=UNEVEN),
        )
    pieces = np.split(np.asarray(flat, np.int32), np.cumsum(counts)[:-1])
    return Assignment(num_parts, dict(zip(names, pieces, strict=True)), "metis", seed)


def _node_weights(graph: HeteroGraph, joined: Adjacency) -> np.ndarray:
    total = joined.matrix.shape[0]
    weights = np.ones(total, np.int64)
    train = graph.splits.get("train", np.zeros(0, np.int32))
    if graph.target is not None and len(train):
        weights[joined.first[graph.target] + train] += max(1, total // len(train) - 1)
    return weights


def _pymetis() -> Any:
    try:
        return importlib.import_module("pymetis")
    except ImportError:
        raise InputError(
            f"--method metis needs pymetis, which is not installed: {HOW_TO_GET_IT}, or use --method metapath"
        ) from None
