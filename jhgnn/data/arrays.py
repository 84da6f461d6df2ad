"""Plain arrays by key: one `.npz`, or a folder (or zip) of `.npy` files named by key.

| key | holds |
|---|---|
| `A__NAME__B` or `A_B` | edges from type A to type B: integers `[2, num_edges]`, senders then receivers |
| `A__NAME__B_weight` or `A_B_weight` | their weights `[num_edges]`, optional |
| `node_types` | names of the types `[num_types]`; without it they are those of the edge keys, as they appear |
| `num_nodes` | nodes of each type `[num_types]`, in that order; or one number under `A_num_nodes` for each |
| `A_feat` (also `A_features`, `A_x`) | dense features `[num_nodes, width]`, optional |
| `A_feat_indptr`, `_indices`, `_shape`, `_data` | the same as CSR; without `_data` all are ones |
| `A_label` or `label` (also `labels`, `y`) | class ids `[num_nodes]`, -1: none, or 0 and 1 `[num_nodes, classes]` |
| `train_idx`, `val_idx`, `test_idx` | node ids of the splits, or `train_mask`, ...: booleans `[num_nodes]` |
| `target` | the labelled type, as a string; needed only where `label` fits several types |

Files of a folder have no order, so there `num_nodes` needs `node_types`. `A_B` is read only where one underscore is in
the key, or `node_types` says how to cut it. Other keys are left alone and named in the log. `acm_gtn.npz`, the ACM of
GTN and of the characterization paper's Table 3, is in this layout.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jhgnn.data.array_files import csr_from_arrays, read_npy, read_npz
from jhgnn.data.feature_matrix import compact
from jhgnn.data.labelled import check_target
from jhgnn.data.source import open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, Features, HeteroGraph
from jhgnn.graph.schema import Relation

_LABEL_KEYS = ("label", "labels", "y")
_FEATURE_WORDS = ("feat", "features", "x")
_CSR_PARTS = ("indptr", "indices", "shape", "data")
_log = logging.getLogger(__name__)


def read_arrays(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    reverse: bool = True,
) -> HeteroGraph:
    """Reads arrays named as this module's table says, from a `.npz`, or a folder or zip of one `.npz` or of `.npy`s.

    Args:
        path: the file, folder or zip.
        target: labelled type; needed only where the keys leave it open.
        seed: unused, splits are read.
        progress: unused.
        reverse: add the reverses of relations that are given in one direction only.

    Raises:
        InputError: a file is missing, damaged or pickled, a key is missing, or its array is wrong; the key is named.
    """
    arrays, where, name, ordered = _read(path)
    used: set[str] = set()
    edge_keys = _edge_keys(arrays, where)
    if "num_nodes" in arrays and "node_types" not in arrays and not ordered:
        raise InputError(f"{where}: 'num_nodes' needs 'node_types' beside it in a folder, whose files have no order")
    num_nodes = _num_nodes(arrays, edge_keys, where, used)
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for key, relation in edge_keys.items():
        edges[relation] = tuple(arrays[key])
        used.add(key)
        if f"{key}_weight" in arrays:
            used.add(f"{key}_weight")
            edges[relation] += (arrays[f"{key}_weight"],)
    features = {node_type: _features(arrays, node_type, where, used) for node_type in num_nodes}
    labelled, labels = _labels(arrays, num_nodes, target, where, used)
    splits = {}
    for split in SPLITS:
        for key in (f"{split}_idx", f"{split}_mask"):
            if key in arrays:
                used.add(key)
                splits[split] = arrays[key].astype(bool) if key.endswith("mask") else arrays[key]
    if left := sorted(arrays.keys() - used):
        _log.info("%s: no use for the keys %s", where, ", ".join(left))
    graph = HeteroGraph.from_arrays(
        name=name,
        where=where,
        num_nodes=num_nodes,
        edges=edges,
        features=features,
        target=labelled,
        labels=labels,
        splits=splits,
    )
    return graph.with_reverse_relations() if reverse else graph


def _read(path: str | Path | None) -> tuple[dict[str, np.ndarray], str, str, bool]:
    """Arrays, what to call them in messages and in reports, and whether the keys stand in their writer's order."""
    given = Path(path) if path else None
    if given is not None and given.suffix.lower() == ".npz" and given.is_file():
        with open(given, "rb") as file:
            return read_npz(file, str(given)), str(given), given.stem, True
    with open_source(path, "*.np[yz]", what="arrays") as source:
        packed, single = source.matching("*.npz"), source.matching("*.npy")
        if packed and (single or len(packed) > 1):
            raise InputError(
                f"arrays: {source.shown} holds {', '.join((packed + single)[:8])}; need one .npz, or .npy files alone"
            )
        if packed:
            where = source.where(packed[0])
            return read_npz(source.read_seekable(packed[0]), where), where, Path(packed[0]).stem, True
        arrays = {Path(name).stem: read_npy(source.read_seekable(name), source.where(name)) for name in single}
        return arrays, source.shown, Path(source.shown).stem, False


def _edge_keys(arrays: Mapping[str, np.ndarray], where: str) -> dict[str, Relation]:
    known = [str(name) for name in np.atleast_1d(arrays["node_types"])] if "node_types" in arrays else None
    found: dict[str, Relation] = {}
    for key, array in arrays.items():
        ends = _ends(key, known)
        if ends is None:
            continue
        is_whole = array.dtype.kind in "iu" or not array.size  # NumPy's empty arrays are floats
        if not is_whole or array.ndim != 2 or array.shape[0] != 2:
            if "__" in key and not key.endswith("_weight"):
                raise InputError(
                    f"{where}: edges {key!r} have shape {array.shape} of {array.dtype}; need integers [2, E]"
                )
            continue
        found[key] = Relation(*ends)
    if not found:
        raise InputError(f"{where} has no edges: need a key such as 'paper_author' with integers [2, num_edges]")
    return found


def _ends(key: str, known: list[str] | None) -> tuple[str, str, str] | None:
    """Source, name and target that a key may stand for."""
    if key.count("__") == 2:
        source, name, target = key.split("__")
        return (source, name, target) if source and name and target else None
    cuts = [(key[: match.start()], key[match.end() :]) for match in re.finditer("_", key)]
    cuts = [cut for cut in cuts if known is None or (cut[0] in known and cut[1] in known)]
    if len(cuts) != 1 or not all(cuts[0]) or cuts[0][1] in (*_LABEL_KEYS, *_FEATURE_WORDS, "idx", "mask"):
        return None
    source, target = cuts[0]
    return source, f"{source}-{target}", target


def _num_nodes(
    arrays: Mapping[str, np.ndarray], edge_keys: Mapping[str, Relation], where: str, used: set[str]
) -> dict[str, int]:
    if "node_types" in arrays:
        used.add("node_types")
        types = [str(name) for name in np.atleast_1d(arrays["node_types"])]
    else:
        ends = (end for relation in edge_keys.values() for end in (relation.source, relation.target))
        types = list(dict.fromkeys(ends))
    if "num_nodes" in arrays:
        used.add("num_nodes")
        counts = np.atleast_1d(arrays["num_nodes"])
        if counts.shape != (len(types),) or counts.dtype.kind not in "iu":
            raise InputError(
                f"{where}: 'num_nodes' has shape {counts.shape} of {counts.dtype};"
                f" need one integer for each of {', '.join(types)}"
            )
        return dict(zip(types, counts.tolist(), strict=True))
    num_nodes = {}
    for node_type in types:
        key = f"{node_type}_num_nodes"
        if key not in arrays or arrays[key].size != 1 or arrays[key].dtype.kind not in "iu":
            raise InputError(f"{where}: need the key 'num_nodes', or a single integer under {key!r}")
        used.add(key)
        num_nodes[node_type] = int(arrays[key].item())
    return num_nodes


def _features(arrays: Mapping[str, np.ndarray], node_type: str, where: str, used: set[str]) -> Features | None:
    for word in _FEATURE_WORDS:
        key = f"{node_type}_{word}"
        if key in arrays:
            used.add(key)
            if arrays[key].ndim != 2 or arrays[key].dtype.kind not in "fiub":
                raise InputError(
                    f"{where}: {key!r} has shape {arrays[key].shape} of {arrays[key].dtype}; need a matrix of numbers"
                )
            return compact(arrays[key])
        parts = {part: arrays[f"{key}_{part}"] for part in _CSR_PARTS if f"{key}_{part}" in arrays}
        if parts:
            used.update(f"{key}_{part}" for part in parts)
            return compact(csr_from_arrays(parts, f"{where}: {key!r}"))
    return None


def _labels(
    arrays: Mapping[str, np.ndarray], num_nodes: Mapping[str, int], target: str | None, where: str, used: set[str]
) -> tuple[str | None, np.ndarray | None]:
    typed = {
        node_type: f"{node_type}_{word}" for node_type in num_nodes for word in _LABEL_KEYS
        if f"{node_type}_{word}" in arrays
    }  # fmt: skip
    asked = target
    if "target" in arrays:
        used.add("target")
        stored = str(arrays["target"])
        if stored not in num_nodes:
            raise InputError(f"{where}: 'target' is {stored!r}; need one of {', '.join(num_nodes)}")
        target = target or stored
    if typed:
        if target is None and len(typed) > 1:
            raise InputError(f"{where} labels several types: {', '.join(typed)}; choose one as target")
        chosen = target if target in typed else check_target(where, next(iter(typed)), target)
        used.add(typed[chosen])
        return chosen, arrays[typed[chosen]]
    for key in _LABEL_KEYS:
        if key not in arrays:
            continue
        used.add(key)
        labels = arrays[key]
        if labels.ndim == 0:
            raise InputError(f"{where}: {key!r} is a single value; need one label a node")
        if target is not None and target not in num_nodes:
            raise InputError(f"{where}: target {target!r} is not a node type; known: {', '.join(num_nodes)}")
        fitting = [node_type for node_type, count in num_nodes.items() if count == len(labels)]
        if target in fitting:
            return target, labels
        if target is not None or len(fitting) != 1:
            counts = ", ".join(f"{node_type} {count}" for node_type, count in num_nodes.items())
            raise InputError(f"{where}: {key!r} has {len(labels)} rows, nodes are {counts}: which type is the target?")
        return fitting[0], labels
    if asked is not None:
        raise InputError(f"{where} has no labels of {asked!r}: need the key '{asked}_label' or 'label'")
    return None, None
