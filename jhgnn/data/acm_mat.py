"""`ACM3025.mat` of HAN, and other MATLAB files made like it: one node type, its metapath graphs as dense matrices.

There are no author or subject nodes in it, so each metapath graph becomes a relation from papers to papers.
Source: Wang et al., HAN, WWW 2019.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from jhgnn.data.feature_matrix import compact
from jhgnn.data.labelled import check_target
from jhgnn.data.matlab_file import read_matlab
from jhgnn.data.source import open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

HAN_METAPATHS = ("PAP", "PLP")
"""What HAN trains on. The file's PTP joins 99.9997 % of all pairs, and its PMP is as dense as PLP."""
TOO_DENSE = 0.9
_TYPES = {"P": "paper", "A": "author", "M": "movie"}
_SPLIT_KEYS = {"train": "train_idx", "val": "val_idx", "test": "test_idx"}


def read_acm_mat(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    metapaths: Sequence[str] | None = None,
) -> HeteroGraph:
    """Reads `ACM3025.mat`, from the file itself or the folder or zip that holds it.

    Args:
        path: the `.mat`, folder or zip.
        target: checked against the file's one type.
        seed: unused, the splits are in the file.
        progress: unused, the file is small.
        metapaths: matrices to take as relations; None: PAP and PLP where the file has them, else all that join less
            than 90 % of the pairs.

    Raises:
        InputError: the file is missing, damaged, of MATLAB 7.3, or lacks a variable; the variable is named.
    """
    given = Path(path) if path else None
    if given is not None and given.suffix.lower() == ".mat" and given.is_file():
        variables, where, name = read_matlab(given.read_bytes(), str(given)), str(given), given.stem
    else:
        with open_source(path, "*.mat", what="acm_mat") as source:
            names = source.matching("*.mat")
            if len(names) > 1:
                raise InputError(f"acm_mat: {source.shown} holds {', '.join(names)}; give the path of one")
            where, name = source.where(names[0]), Path(names[0]).stem
            variables = read_matlab(source.read(names[0]), where)
    labels = _labels(_variable(variables, where, "label", "labels"), where)
    adjacencies = _metapath_graphs(variables, len(labels), metapaths, where)
    node_type = check_target(where, _TYPES.get(next(iter(adjacencies))[0].upper(), "node"), target)
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for metapath, matrix in adjacencies.items():
        senders, receivers = matrix.nonzero()
        edges[Relation(node_type, metapath, node_type)] = (senders, receivers)
    features = _variable(variables, where, "feature", "features")
    return HeteroGraph.from_arrays(
        name=name,
        where=where,
        num_nodes={node_type: len(labels)},
        edges=edges,
        features={node_type: compact(features)},
        target=node_type,
        labels=labels,
        splits={
            split: _variable(variables, where, key).reshape(-1).astype(np.int64) for split, key in _SPLIT_KEYS.items()
        },
    ).with_reverse_relations()


def _variable(
    variables: Mapping[str, np.ndarray | sparse.csr_array], where: str, *keys: str
) -> np.ndarray | sparse.csr_array:
    for key in keys:
        if key in variables:
            return variables[key]
    raise InputError(f"{where} has no variable {keys[0]!r}; found: {', '.join(sorted(variables)) or 'nothing'}")


def _labels(stored: np.ndarray | sparse.csr_array, where: str) -> np.ndarray:
    labels = stored if isinstance(stored, np.ndarray) else stored.toarray()
    if labels.dtype.kind not in "fiub" or labels.ndim != 2:
        raise InputError(f"{where}: variable 'label' has shape {labels.shape} of {labels.dtype}; need numbers")
    if 1 in labels.shape:
        return labels.reshape(-1)
    if not np.isin(labels, (0, 1)).all():
        raise InputError(f"{where}: variable 'label' holds something other than 0 and 1 in {labels.shape[1]} columns")
    per_node = labels.sum(axis=1, dtype=np.int64)
    if (per_node > 1).any():
        return labels.astype(np.uint8)
    return np.where(per_node == 1, labels.argmax(axis=1), -1)


def _metapath_graphs(
    variables: Mapping[str, np.ndarray | sparse.csr_array], count: int, metapaths: Sequence[str] | None, where: str
) -> dict[str, np.ndarray | sparse.csr_array]:
    # DBLP4057 and others of HAN's files write net_APTPA.
    square = {
        key.removeprefix("net_"): value
        for key, value in variables.items()
        if getattr(value, "shape", ()) == (count, count) and value.dtype.kind in "fiub"
    }
    if metapaths is None:
        if all(metapath in square for metapath in HAN_METAPATHS):
            metapaths = HAN_METAPATHS
        else:
            metapaths = [key for key, matrix in square.items() if len(matrix.nonzero()[0]) < TOO_DENSE * count**2]
    for metapath in metapaths:
        if metapath not in square:
            raise InputError(
                f"{where} has no {count} x {count} matrix {metapath!r}; found: {', '.join(square) or 'none'}"
            )
    if not metapaths:
        raise InputError(f"{where} has no {count} x {count} matrix of a metapath; need one at least, such as 'PAP'")
    return {metapath: square[metapath] for metapath in metapaths}
