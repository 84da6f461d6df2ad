"""The raw CSV layout of OGB's heterogeneous node property sets, which is that of ogbn-mag.

Below the folder: `raw/num-node-dict.csv.gz`, `raw/triplet-type-list.csv.gz`, `raw/relations/H___R___T/edge.csv.gz`,
`raw/node-feat/TYPE/node-feat.csv.gz`, `raw/node-label/TYPE/node-label.csv.gz`, and `split/NAME/TYPE/{train,valid,
test}.csv.gz`. Source: Hu et al., Open Graph Benchmark, NeurIPS 2020.
"""

from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.data.feature_matrix import compact
from jhgnn.data.labelled import check_target
from jhgnn.data.names import plain
from jhgnn.data.number_table import read_table
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.schema import Relation

_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def read_ogb_mag(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    undirected_cites: bool = True,
    reverse: bool = True,
    split: str | None = None,
) -> HeteroGraph:
    """Reads ogbn-mag, or another set in its raw layout, from the folder or zip as downloaded.

    Args:
        path: folder or zip that holds `raw` and `split`, itself or in a sub-folder such as `mag`.
        target: labelled type; needed only where several types have labels.
        seed: unused, the splits are in the files.
        progress: report on stderr.
        undirected_cites: make relations within one type (`cites`) symmetric, parallel edges merged, as in ogbn-mag's
            published results.
        reverse: add the reverses of the others.
        split: name of the split, such as `time`; needed only where there are several.

    Raises:
        InputError: a file is missing, damaged or wrong, counts disagree; file and row are named.
    """
    needed = ("raw/num-node-dict.csv.gz", "raw/triplet-type-list.csv.gz")
    with open_source(path, *needed, what="ogb_mag") as source:
        num_nodes = _num_nodes(source)
        edges = {
            relation: _edges(source, folder, relation, num_nodes, undirected_cites, progress)
            for relation, folder in _relations(source, num_nodes).items()
        }
        features: dict[str, Features] = {}
        for node_type in num_nodes:
            name = f"raw/node-feat/{node_type}/node-feat.csv.gz"
            if name in source:
                features[node_type] = compact(_table(source, name, np.float32, progress=progress))
        labelled = _labelled_type(source, num_nodes, target)
        name = f"raw/node-label/{labelled}/node-label.csv.gz"
        table = _table(source, name, np.float64)
        if np.isinf(table).any():
            raise InputError(f"{source.where(name)} row {int(np.argmax(np.isinf(table).any(1))) + 1}: infinite label")
        labels = np.where(np.isnan(table), -1, table)  # OGB writes nan for nodes without a label
        graph = HeteroGraph.from_arrays(
            name=Path(source.shown).stem,
            where=source.shown,
            num_nodes=num_nodes,
            edges=edges,
            features=features,
            target=labelled,
            labels=labels[:, 0] if labels.shape[1] == 1 else labels,
            splits=_splits(source, labelled, num_nodes[labelled], split),
        )
    return graph.with_reverse_relations() if reverse else graph


def _num_nodes(source: Source) -> dict[str, int]:
    name = "raw/num-node-dict.csv.gz"
    rows = [line.split(",") for _, line in source.lines(name)]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise InputError(f"{source.where(name)} must have a row of types and a row of as many counts")
    counts: dict[str, int] = {}
    for node_type, count in zip(*rows, strict=True):
        if not count.strip().isdigit():
            raise InputError(f"{source.where(name)} row 2: {count!r} is not a number of nodes")
        counts[node_type.strip()] = int(count)
    return counts


def _relations(source: Source, num_nodes: dict[str, int]) -> dict[Relation, str]:
    name = "raw/triplet-type-list.csv.gz"
    relations: dict[Relation, str] = {}
    for row, line in source.lines(name):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3:
            raise InputError(f"{source.where(name)} row {row} has {len(fields)} fields; need head, relation, tail")
        for node_type in (fields[0], fields[2]):
            if node_type not in num_nodes:
                known = ", ".join(num_nodes)
                raise InputError(f"{source.where(name)} row {row}: unknown node type {node_type!r}; known: {known}")
        relations[Relation(fields[0], plain(fields[1]), fields[2])] = "raw/relations/" + "___".join(fields)
    if not relations:
        raise InputError(f"{source.where(name)} names no relations")
    return relations


def _edges(
    source: Source, folder: str, relation: Relation, num_nodes: dict[str, int], undirected: bool, progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    name = f"{folder}/edge.csv.gz"
    table = _table(source, name, np.int64, columns=2, progress=progress)
    counted = f"{folder}/num-edge-list.csv.gz"
    if counted in source:
        expected = int(_table(source, counted, np.int64, columns=1).sum())
        if expected != len(table):
            raise InputError(f"{source.where(name)} has {len(table)} edges; {counted} says {expected}")
    for column, node_type in enumerate((relation.source, relation.target)):
        bad = (table[:, column] < 0) | (table[:, column] >= num_nodes[node_type])
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{source.where(name)} row {row + 1}: {node_type} {table[row, column]} is out of range;"
                f" need 0 to {num_nodes[node_type] - 1}"
            )
    senders, receivers = table.T
    if undirected and relation.source == relation.target:
        count = num_nodes[relation.source]
        pairs = np.unique(np.concatenate([senders * count + receivers, receivers * count + senders]))
        senders, receivers = np.divmod(pairs, count)
    return senders, receivers


def _labelled_type(source: Source, num_nodes: dict[str, int], target: str | None) -> str:
    found = [node_type for node_type in num_nodes if f"raw/node-label/{node_type}/node-label.csv.gz" in source]
    if not found:
        raise InputError(f"{source.where('raw/node-label/TYPE/node-label.csv.gz')} is missing for every type")
    if target in found:
        return str(target)
    if len(found) > 1 and target is None:
        raise InputError(f"{source.shown} labels several types: {', '.join(found)}; choose one as target")
    return check_target(source.shown, found[0], target)


def _splits(source: Source, labelled: str, count: int, split: str | None) -> dict[str, np.ndarray]:
    tail = f"/{labelled}/train.csv.gz"
    found = sorted(name.split("/")[1] for name in source.names if name.startswith("split/") and name.endswith(tail))
    if split is None:
        if len(found) != 1:
            listed = ", ".join(found) or "none"
            raise InputError(f"{source.where('split/NAME' + tail)}: need one split of {labelled!r}; found: {listed}")
        split = found[0]
    splits = {}
    for key, file in _SPLITS.items():
        name = f"split/{split}/{labelled}/{file}.csv.gz"
        ids = _table(source, name, np.int64, columns=1)[:, 0]
        bad = (ids < 0) | (ids >= count)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{source.where(name)} row {row + 1}: {labelled} {ids[row]} is out of range; need 0 to {count - 1}"
            )
        if not len(ids):
            raise InputError(f"{source.where(name)} is an empty split")
        splits[key] = ids
    return splits


def _table(source: Source, name: str, dtype: Any, columns: int | None = None, progress: bool = False) -> np.ndarray:
    with source.open(name, progress) as (stream, advance):
        return read_table(stream, source.where(name), columns=columns, separator=b",", dtype=dtype, advance=advance)
