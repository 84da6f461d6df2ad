"""Partitions that DistDGL wrote, read without DGL: their JSON, their graphs and their arrays, one part at a time.

What `dgl.distributed.partition_graph` and DGL's distributed pipeline write is read whole. Not read are partitions for
GraphBolt, whose graphs are pickles of torch, and those from before DGL 0.5, whose nodes were not renumbered by part.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.dgl_names import FEATURES, LABELS, MASKS, WEIGHTS, first_of, labelled_type, whole_labels
from jhgnn.distributed.dgl_stream import StoredGraph, read_graph, read_tensors
from jhgnn.distributed.manifest import FeatureLayout, Manifest, counts_of_map, in_order, read_json, relation_from
from jhgnn.distributed.numbering import owners_of
from jhgnn.distributed.part import Part, merge_parts
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS, EdgeSet, HeteroGraph
from jhgnn.graph.schema import Relation, Schema

GRAPHBOLT = "part_graph_graphbolt"


def is_distdgl(path: Path) -> bool:
    """Whether a file is a partition's JSON, by its keys."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"part_method", "node_map", "part-0"} <= content.keys()


def load_distdgl_part(config: str | Path, number: int, *, target: str | None = None) -> Part:
    """One part of a DistDGL partition, as `jhgnn.distributed.part.load_part` gives one of ours; arrays are mapped.

    Of the arrays of a node type, `feat` (`features`, `feature`, `x`) are its features, `label` (`labels`, `y`) and
    `train_mask`, `val_mask`, `test_mask` the target's labels and splits; `weight` (`weights`, `w`) of an edge type are
    its weights. Others are left alone.

    Original ids are DGL's `orig_nids.dgl` beside the part's graph, or `orig_id` in it. DGL's `partition_graph` stores
    neither (it can only return them), and then the original ids are the new ones. Only that part's files are read, and
    of the others the labels, for the number of classes.

    Args:
        config: the partition's JSON file.
        number: of the part, from 0.
        target: the labelled type; needed where several have labels.

    Raises:
        InputError: a file is missing, damaged, or of a kind that only DGL or torch can open; entries disagree.
    """
    partition = _Partition(Path(config).expanduser(), target)
    if not 0 <= number < partition.manifest.num_parts:
        raise InputError(f"{config} has {partition.manifest.num_parts} parts; there is no part {number}")
    return partition.part(number)


def read_distdgl(
    config: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True
) -> tuple[HeteroGraph, Assignment]:
    """The whole graph of a DistDGL partition in its original ids, and who owns which node.

    Args:
        config: the partition's JSON file.
        target: as in `load_distdgl_part`.
        seed: unused, splits are read.
        progress: unused.

    Raises:
        InputError: as `load_distdgl_part`.
    """
    if config is None:
        raise InputError("distdgl: no path is given; need the JSON file of a partition")
    partition = _Partition(Path(config).expanduser(), target)
    manifest = partition.manifest
    parts = [partition.part(number) for number in range(manifest.num_parts)]
    owners = {name: np.empty(count, np.int32) for name, count in manifest.num_nodes.items()}
    graph = merge_parts(parts, original_ids=True)
    for part in parts:
        for name, ids in part.original_ids.items():
            owners[name][ids] = part.number
    return graph, Assignment(manifest.num_parts, owners, manifest.method)


class _Partition:
    def __init__(self, config: Path, target: str | None) -> None:
        if not config.is_file():
            raise InputError(
                f"distdgl: {config} is no file; need the JSON file of a partition, beside its part folders"
            )
        self._config = config
        self._content = read_json(config, "no partition is there")
        try:
            self._read(target)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{config}: entry missing or wrong: {error}") from error

    def _read(self, target: str | None) -> None:
        content = self._content
        num_parts = content["num_parts"]
        node_map, edge_map = content["node_map"], content["edge_map"]
        if isinstance(node_map, list):  # one type, written before there were others
            node_map, edge_map = {"_N": node_map}, {"_N:_E:_N": edge_map}
        if isinstance(node_map, str) or any(isinstance(ranges, str) for ranges in node_map.values()):
            raise InputError(
                f"{self._config} keeps its node map in a file: its nodes were not renumbered by part; partition again"
                " with DGL 0.5 or later"
            )
        types = in_order(content.get("ntypes", {"_N": 0}))
        names = in_order(content.get("etypes", {"_N:_E:_N": 0}))
        relations = tuple(relation_from(name) for name in names)
        node_counts = counts_of_map(node_map, types, num_parts, "node_map")
        edge_counts = counts_of_map(edge_map, names, num_parts, "edge_map")
        self._files = [self._part_files(number) for number in range(num_parts)]
        first = self._typed(self._tensors(0, "node_feats"), types[0])
        arrays = {name: [key[1] for key in first if key[0] == name] for name in types}
        chosen = labelled_type(arrays, target, str(self._config))
        features = {}
        for name in types:
            key = first_of(FEATURES, arrays[name])
            if key is not None:
                shape = first[name, key].shape
                features[name] = FeatureLayout("dense", int(np.prod(shape[1:])))
        splits: tuple[str, ...] = ()
        labels, num_classes = None, 0
        if chosen is not None:
            splits = tuple(split for split in SPLITS if f"{split}_mask" in arrays[chosen])
            labels, num_classes = self._classes(chosen, types[0])
        # Ids over all types, part by part: where each (part, type) begins.
        table = np.stack(node_counts, axis=1)
        self._starts = np.concatenate([[0], np.cumsum(table.reshape(-1))])[:-1]
        edge_table = np.stack(edge_counts, axis=1)
        self._edge_starts = (np.cumsum(edge_table.reshape(-1)) - edge_table.reshape(-1)).reshape(edge_table.shape)
        self._firsts = np.cumsum([0, *table.sum(axis=0)])[:-1]
        self.manifest = Manifest(
            identity=f"distdgl-{zlib.crc32(self._config.read_bytes()):08x}",
            graph_name=str(content["graph_name"]),
            method=str(content.get("part_method", "unknown")),
            seed=0,
            num_parts=num_parts,
            schema=Schema(types, relations),
            offsets={name: np.concatenate([[0], np.cumsum(own)]) for name, own in zip(types, node_counts, strict=True)},
            num_edges=dict(zip(relations, edge_counts, strict=True)),
            features=features,
            target=chosen,
            labels=labels,
            num_classes=num_classes,
            splits=splits,
            links=None,
            checksums=(0,) * num_parts,
        )

    def part(self, number: int) -> Part:
        manifest, types = self.manifest, self.manifest.schema.node_types
        stored = read_graph(self._path(number, "part_graph"))
        where = self._path(number, "part_graph")
        local = {name: self._column(stored.node_data, name, where) for name in ("_ID", "inner_node")}
        edge = {name: self._column(stored.edge_data, name, where) for name in ("_ID", "inner_edge")}
        inner = edge["inner_edge"].astype(bool)
        senders_type, senders = self._by_type(local["_ID"][stored.senders[inner]], where)
        receivers_type, receivers = self._by_type(local["_ID"][stored.receivers[inner]], where)
        edge_ids = edge["_ID"][inner]
        node_arrays = self._typed(self._tensors(number, "node_feats"), types[0])
        edge_arrays = self._typed(self._tensors(number, "edge_feats"), "_N:_E:_N")
        edges, halo_ids = {}, {name: [np.zeros(0, np.int32)] for name in types}
        for position, relation in enumerate(manifest.schema.relations):
            start, count = self._edge_starts[number, position], int(manifest.num_edges[relation][number])
            own = (edge_ids >= start) & (edge_ids < start + count)
            if int(own.sum()) != count:
                raise InputError(f"{where} has {int(own.sum())} edges of {str(relation)!r}; edge_map has {count}")
            ends = types.index(relation.source), types.index(relation.target)
            if (senders_type[own] != ends[0]).any() or (receivers_type[own] != ends[1]).any():
                raise InputError(f"{where}: edges of {str(relation)!r} join other types; the partition is damaged")
            owned = manifest.owned(relation.target, number)
            rows = receivers[own] - owned.start
            if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= len(owned)):
                raise InputError(f"{where}: an inner edge of {str(relation)!r} ends in another part")
            weights = self._weights(edge_arrays, relation, edge_ids[own] - start, number)
            edges[relation] = EdgeSet.from_pairs(senders[own], rows, len(owned), weights)
            halo_ids[relation.source].append(senders[own])
        halo = {}
        for name, ids in halo_ids.items():
            met, owned = np.unique(np.concatenate(ids)), manifest.owned(name, number)
            beyond = met[(met < owned.start) | (met >= owned.stop)].astype(np.int32)
            if len(beyond):
                halo[name] = beyond
        features = {}
        for name, layout in manifest.features.items():
            features[name] = self._features(node_arrays, name, layout, number)
        labels, splits = None, {}
        if manifest.target is not None:
            own_target = manifest.owned(manifest.target, number)
            if manifest.labels is not None:
                labels = self._labels(node_arrays, manifest.target, number)
            for mask, split in MASKS.items():
                if split in manifest.splits:
                    marks = self._rows(node_arrays, manifest.target, mask, number)
                    splits[split] = (np.flatnonzero(marks) + own_target.start).astype(np.int32)
        original = self._original_ids(stored, local, number)
        return Part(manifest, number, original, features, edges, halo, labels, splits, {})

    def _part_files(self, number: int) -> Mapping[str, str]:
        files = self._content[f"part-{number}"]
        if "part_graph" not in files:
            if GRAPHBOLT in files:
                raise InputError(
                    f"{self._config}: part {number} is a GraphBolt graph ({files[GRAPHBOLT]}), a pickle that only torch"
                    " can open; partition with use_graphbolt=False"
                )
            raise InputError(f"{self._config}: part {number} names no part_graph")
        return dict(files)

    def _path(self, number: int, key: str) -> Path:
        return self._config.parent / self._files[number][key]

    def _tensors(self, number: int, key: str) -> dict[str, np.ndarray]:
        return read_tensors(self._path(number, key)) if key in self._files[number] else {}

    def _typed(self, arrays: Mapping[str, np.ndarray], only: str) -> dict[tuple[str, str], np.ndarray]:
        """(type, name) -> array; names without a type are of the only one, as before there were others."""
        typed = {}
        for key, array in arrays.items():
            node_type, _, name = key.rpartition("/")
            typed[node_type or only, name] = array
        return typed

    def _column(self, data: Mapping[str, np.ndarray], name: str, where: Path) -> np.ndarray:
        if name not in data:
            raise InputError(
                f"{where} has no data {name!r}, which DistDGL writes; found: {', '.join(data) or 'nothing'}"
            )
        return data[name]

    def _by_type(self, ids: np.ndarray, where: Path) -> tuple[np.ndarray, np.ndarray]:
        """The type's position, and the id within the type, of ids that run over all types."""
        types = self.manifest.schema.node_types
        total = sum(self.manifest.num_nodes.values())
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= total):
            raise InputError(f"{where} names node {int(ids.max())}; there are {total}")
        block = np.searchsorted(self._starts, ids, side="right") - 1
        offsets = np.stack([self.manifest.offsets[name][:-1] for name in types], axis=1).reshape(-1)
        return block % len(types), (ids - self._starts[block] + offsets[block]).astype(np.int32)

    def _rows(self, arrays: Mapping[tuple[str, str], np.ndarray], node_type: str, name: str, number: int) -> np.ndarray:
        where = f"{self._path(number, 'node_feats')}: {node_type}/{name}"
        if (node_type, name) not in arrays:
            raise InputError(f"{where} is missing, but part 0 has it")
        count = len(self.manifest.owned(node_type, number))
        if len(arrays[node_type, name]) != count:
            raise InputError(f"{where} has {len(arrays[node_type, name])} rows; part {number} owns {count}")
        return arrays[node_type, name]

    def _features(
        self, arrays: Mapping[tuple[str, str], np.ndarray], node_type: str, layout: FeatureLayout, number: int
    ) -> np.ndarray:
        key = first_of(FEATURES, [name for owner, name in arrays if owner == node_type])
        rows = self._rows(arrays, node_type, key or FEATURES[0], number)
        rows = rows.reshape(len(rows), -1)
        if rows.shape[1] != layout.width and len(rows):
            raise InputError(
                f"{self._path(number, 'node_feats')}: {node_type}/{key} has {rows.shape[1]} columns; part 0 has"
                f" {layout.width}"
            )
        return rows.reshape(len(rows), layout.width).astype(np.float32, copy=False)

    def _labels(self, arrays: Mapping[tuple[str, str], np.ndarray], target: str, number: int) -> np.ndarray:
        key = first_of(LABELS, [name for owner, name in arrays if owner == target])
        rows = self._rows(arrays, target, key or LABELS[0], number)
        return whole_labels(rows, f"{self._path(number, 'node_feats')}: {target}/{key}")

    def _classes(self, target: str, only: str) -> tuple[str | None, int]:
        """Whether labels are of one class or several, and the number of classes, over all parts."""
        kind, num_classes = None, 0
        for number in range(len(self._files)):
            arrays = self._typed(self._tensors(number, "node_feats"), only)
            key = first_of(LABELS, [name for owner, name in arrays if owner == target])
            if key is None:
                continue
            labels = whole_labels(arrays[target, key], f"{self._path(number, 'node_feats')}: {target}/{key}")
            kind = "multi" if labels.ndim == 2 else "single"
            classes = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
            num_classes = max(num_classes, classes)
        return kind, num_classes

    def _weights(
        self, arrays: Mapping[tuple[str, str], np.ndarray], relation: Relation, rows: np.ndarray, number: int
    ) -> np.ndarray | None:
        # DGL before 1.0 named edge arrays by the edge type alone.
        for owner in (str(relation), relation.name):
            key = first_of(WEIGHTS, [name for one, name in arrays if one == owner])
            if key is not None and arrays[owner, key].ndim == 1 and arrays[owner, key].dtype.kind in "iuf":
                values = arrays[owner, key]
                if len(values) != int(self.manifest.num_edges[relation][number]):
                    raise InputError(
                        f"{self._path(number, 'edge_feats')}: {owner}/{key} has {len(values)} rows for"
                        f" {int(self.manifest.num_edges[relation][number])} edges"
                    )
                return values[rows].astype(np.float32)
        return None

    def _original_ids(self, stored: StoredGraph, local: Mapping[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        manifest, where = self.manifest, self._path(number, "part_graph")
        beside = where.parent / "orig_nids.dgl"
        if beside.is_file():
            arrays = read_tensors(beside)
            for name in manifest.schema.node_types:
                if len(arrays.get(name, ())) != len(manifest.owned(name, number)):
                    raise InputError(
                        f"{beside} has {len(arrays.get(name, ()))} ids of {name!r}; part {number} owns others"
                    )
            return {name: arrays[name].astype(np.int32) for name in manifest.schema.node_types}
        if "orig_id" not in stored.node_data:
            return {name: np.array(manifest.owned(name, number), np.int32) for name in manifest.schema.node_types}
        inner = local["inner_node"].astype(bool)
        kind, ids = self._by_type(local["_ID"][inner], where)
        old = stored.node_data["orig_id"][inner]
        found = {}
        for position, name in enumerate(manifest.schema.node_types):
            owned = manifest.owned(name, number)
            own = kind == position
            if (owners_of(manifest.offsets[name], ids[own]) != number).any() or int(own.sum()) != len(owned):
                raise InputError(f"{where} has {int(own.sum())} inner nodes of {name!r}; node_map has {len(owned)}")
            found[name] = np.empty(len(owned), np.int32)
            found[name][ids[own] - owned.start] = old[own] - self._firsts[position]
        return found
