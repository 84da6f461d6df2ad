"""MAGNN's preprocessed layout, which PyG keeps as the raw folder of its IMDB and DBLP data sets.

`adjM.npz` is one adjacency over all types, `node_types.npy` says whose rows are whose, `features_TYPE.npz` or `.npy`
are per type, and labels and splits count within the labelled type. Relations are the non-empty blocks of `adjM`.
Source: Fu et al., MAGNN, WWW 2020.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jhgnn.data.array_files import csr_from_arrays, read_npy, read_npz
from jhgnn.data.feature_matrix import compact
from jhgnn.data.labelled import check_target
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.schema import Relation

KNOWN_TYPES = {
    (4278, 2081, 5257): ("movie", "director", "actor"),
    (4057, 14328, 7723, 20): ("author", "paper", "term", "venue"),
}
"""Node counts of the published IMDB and DBLP -> what the types are called; the files do not say."""
_SPLIT_KEYS = {"train": "train_idx", "val": "val_idx", "test": "test_idx"}


def read_magnn(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    types: Sequence[str] | None = None,
) -> HeteroGraph:
    """Reads a data set in MAGNN's layout, from its folder or zip.

    Args:
        path: folder or zip; the files may lie in one sub-folder of it, such as PyG's `raw`.
        target: labelled type; needed only where several types have as many nodes as there are labels, none the first.
        seed: unused, the splits are in the files.
        progress: unused, the files are small.
        types: names of the types 0, 1, ...; None: those of IMDB and DBLP by their counts, else `type0`, `type1`, ...

    Raises:
        InputError: a file is missing, damaged, pickled or wrong; file and key are named.
    """
    with open_source(path, "adjM.npz", "node_types.npy", what="magnn") as source:
        type_of = _node_types(source)
        counts = np.bincount(type_of)
        names = _type_names(types, counts, source.where("node_types.npy"))
        num_nodes = {name: int(count) for name, count in zip(names, counts, strict=True)}
        features = {name: _features(source, number) for number, name in enumerate(names)}
        labels = _integers(read_npy(source.read_seekable("labels.npy"), source.where("labels.npy")))
        labelled = _labelled_type(num_nodes, len(labels) if labels.ndim else 0, target, source.where("labels.npy"))
        splits = read_npz(source.read_seekable("train_val_test_idx.npz"), source.where("train_val_test_idx.npz"))
        for key in _SPLIT_KEYS.values():
            if key not in splits:
                raise InputError(f"{source.where('train_val_test_idx.npz')} has no key {key!r}; found {sorted(splits)}")
        graph = HeteroGraph.from_arrays(
            name=Path(source.shown).stem,
            where=source.shown,
            num_nodes=num_nodes,
            edges=_blocks(source, type_of, names),
            features=features,
            target=labelled,
            labels=labels,
            splits={split: splits[key] for split, key in _SPLIT_KEYS.items()},
        )
    return graph.with_reverse_relations()


def _node_types(source: Source) -> np.ndarray:
    where = source.where("node_types.npy")
    type_of = _integers(read_npy(source.read_seekable("node_types.npy"), where))
    if type_of.ndim != 1 or type_of.dtype.kind not in "iu" or not type_of.size:
        raise InputError(f"{where} has shape {type_of.shape} of {type_of.dtype}; need one integer a node")
    present = np.unique(type_of)
    if not np.array_equal(present, np.arange(len(present))):
        raise InputError(f"{where} holds the types {present[:10].tolist()}; need 0, 1, ... without a gap")
    return type_of.astype(np.int64)


def _type_names(types: Sequence[str] | None, counts: np.ndarray, where: str) -> Sequence[str]:
    if types is None:
        return KNOWN_TYPES.get(tuple(counts.tolist()), tuple(f"type{number}" for number in range(len(counts))))
    if len(types) != len(counts):
        raise InputError(f"{where} has {len(counts)} types but {len(types)} names are given: {', '.join(types)}")
    return types


def _features(source: Source, number: int) -> Features | None:
    stem = f"features_{number}"
    if f"{stem}.npz" in source:
        where = source.where(f"{stem}.npz")
        return compact(csr_from_arrays(read_npz(source.read_seekable(f"{stem}.npz"), where), where))
    if f"{stem}.npy" in source:
        where = source.where(f"{stem}.npy")
        matrix = read_npy(source.read_seekable(f"{stem}.npy"), where)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise InputError(f"{where} has shape {matrix.shape} of {matrix.dtype}; need a matrix of numbers")
        return compact(matrix)
    return None


def _labelled_type(num_nodes: dict[str, int], num_labels: int, target: str | None, where: str) -> str:
    fitting = [name for name, count in num_nodes.items() if count == num_labels]
    if not fitting:
        counts = ", ".join(f"{name} {count}" for name, count in num_nodes.items())
        raise InputError(f"{where} has {num_labels} labels; no type has as many nodes: {counts}")
    if target in fitting:
        return str(target)
    first = next(iter(num_nodes))
    if len(fitting) > 1 and first not in fitting and target is None:
        raise InputError(f"{where} has as many labels as {' and as '.join(fitting)} nodes; choose one as target")
    return check_target(where, first if first in fitting else fitting[0], target)


def _blocks(source: Source, type_of: np.ndarray, names: Sequence[str]) -> dict[Relation, tuple[np.ndarray, ...]]:
    where, total = source.where("adjM.npz"), len(type_of)
    arrays = read_npz(source.read_seekable("adjM.npz"), where)
    adjacency = csr_from_arrays(arrays, where).tocoo()
    if adjacency.shape != (total, total):
        raise InputError(f"{where} has shape {adjacency.shape}; node_types.npy has {total} nodes")
    local = np.zeros(total, np.int64)
    for number in range(len(names)):
        local[type_of == number] = np.arange(np.count_nonzero(type_of == number))
    present = adjacency.data != 0
    senders, receivers, weights = adjacency.row[present], adjacency.col[present], adjacency.data[present]
    block_of = type_of[senders] * len(names) + type_of[receivers]
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for block in np.unique(block_of):
        start, end = (names[int(number)] for number in divmod(block, len(names)))
        chosen = block_of == block
        columns = [local[senders[chosen]], local[receivers[chosen]]]
        if (weights[chosen] != 1).any():
            columns.append(weights[chosen])
        edges[Relation(start, f"{start}-{end}", end)] = tuple(columns)
    return edges


def _integers(array: np.ndarray) -> np.ndarray:
    """Whole floats as integers; anything else unchanged, for the checks that follow."""
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        return array.astype(np.int64)
    return array
