"""Reading one part: what a process holds of a partitioned graph, memory-mapped, and nothing of other parts."""

import dataclasses
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from jhgnn.data.array_files import NPY_DAMAGE
from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.checked_files import check_file
from jhgnn.distributed.manifest import MANIFEST_FILE, PART_FILE, Manifest, part_folder, read_json, read_manifest
from jhgnn.distributed.numbering import owners_of
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import EdgeSet, Features, HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A part in new ids, of which it owns the range `owned(node_type)`; its arrays have one row an owned node.

    Attributes:
        manifest: of the whole partitioning.
        number: of this part.
        original_ids: node type -> int32 `[owned]`, ids before partitioning.
        features: node type -> float32 `[owned, width]`, dense or CSR; a type without features is absent.
        edges: relation -> the in-edges of owned nodes: receiver i is the i-th owned one, senders are new ids of any
            part.
        halo: node type -> int32 new ids of other parts' nodes that send to this one, ascending.
        labels: int32 `[owned targets]` or uint8 `[owned targets, num_classes]`, or None.
        splits: split -> int32 new ids of owned targets, ascending.
        links: split -> int32 `[num_links, 3]` links whose tail is owned: head, position in `manifest.links`, tail.
    """

    manifest: Manifest
    number: int
    original_ids: Mapping[str, np.ndarray]
    features: Mapping[str, Features]
    edges: Mapping[Relation, EdgeSet]
    halo: Mapping[str, np.ndarray]
    labels: np.ndarray | None
    splits: Mapping[str, np.ndarray]
    links: Mapping[str, np.ndarray]

    def owned(self, node_type: str) -> range:
        """The new ids that this part owns."""
        return self.manifest.owned(node_type, self.number)

    def owners(self, node_type: str, ids: np.ndarray) -> np.ndarray:
        """The part that owns each new id, int32 `[n]`; -1 for an id below 0."""
        return owners_of(self.manifest.offsets[node_type], ids)


def load_part(folder: str | Path, number: int, *, verify: bool = True) -> Part:
    """Maps one part into memory; opens `partition.json` and that part's folder, and no other part's files.

    Args:
        folder: of the partition.
        number: of the part, from 0.
        verify: read the part's files once and compare their CRC-32; else only their sizes are compared.

    Raises:
        InputError: there is no such part; a file is missing, damaged, of another size or checksum than was written; the
            part belongs to another partitioning; ids are out of range.
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    if not 0 <= number < manifest.num_parts:
        raise InputError(f"{folder} has {manifest.num_parts} parts; there is no part {number}")
    reader = _PartFolder(part_folder(folder, number), manifest, number, verify)
    return reader.part()


def load_features(folder: str | Path, number: int, node_type: str) -> Features:
    """The features of the nodes of a type that a part owns, mapped into memory; nothing else of the part is read.

    Raises:
        InputError: as `load_part`.
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    return _PartFolder(part_folder(folder, number), manifest, number, verify=True).features(node_type)


def check_partition(folder: str | Path) -> Manifest:
    """Loads and verifies every part of a folder, one after the other; the manifest.

    Raises:
        InputError: as `load_part`.
    """
    manifest = read_manifest(folder)
    for number in range(manifest.num_parts):
        load_part(folder, number)
    return manifest


def read_assignment(folder: str | Path) -> Assignment:
    """The owner of every node, by its id before partitioning, from the ids that each part keeps; nothing else is read.

    Raises:
        InputError: parts are missing, damaged or of another partitioning, or two of them own the same node.
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    parts = {name: np.full(count, -1, np.int32) for name, count in manifest.num_nodes.items()}
    for number in range(manifest.num_parts):
        own = _PartFolder(part_folder(folder, number), manifest, number, verify=True).original_ids()
        for name, ids in own.items():
            if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= len(parts[name])):
                raise InputError(f"{folder}: part {number} keeps {name} {int(ids.max())} of {len(parts[name])}")
            parts[name][ids] = number
    for name, owners in parts.items():
        if (owners < 0).any():
            raise InputError(f"{folder}: no part owns {name} {int(np.argmin(owners))}; write the partition again")
    return Assignment(manifest.num_parts, parts, manifest.method)


class _PartFolder:
    """The files of one part, checked against its `part.json`, and that against `partition.json`."""

    def __init__(self, path: Path, manifest: Manifest, number: int, verify: bool) -> None:
        self._path, self._manifest, self._number, self._verify = path, manifest, number, verify
        if not path.is_dir():
            raise InputError(f"{path} is missing, but {MANIFEST_FILE} counts {manifest.num_parts} parts")
        where = path / PART_FILE
        content = read_json(where, f"{path} holds no part, or one that was cut short")
        if content.get("identity") != manifest.identity:
            raise InputError(
                f"{path} is a part of another partitioning ({content.get('identity')}) than {MANIFEST_FILE} beside it"
                f" ({manifest.identity}); copy the parts of one partitioning together"
            )
        if content.get("part") != number:
            raise InputError(f"{path} holds part {content.get('part')}, not part {number}; rename it to what it holds")
        checksum = zlib.crc32(where.read_bytes())
        if checksum != manifest.checksums[number]:
            raise InputError(
                f"{where} has the checksum {checksum:08x}, but {MANIFEST_FILE} has {manifest.checksums[number]:08x} for"
                " it; write the partition again"
            )
        self._arrays: Mapping[str, Any] = content["arrays"]

    def original_ids(self) -> dict[str, np.ndarray]:
        """Ids before partitioning, int32 `[owned]` by node type."""
        counts = {name: len(self._manifest.owned(name, self._number)) for name in self._manifest.schema.node_types}
        return {
            name: self._array(f"type{number}_original_ids", np.int32, (count,))
            for number, (name, count) in enumerate(counts.items())
        }

    def part(self) -> Part:
        manifest = self._manifest
        types = manifest.schema.node_types
        edges = {relation: self._edges(number, relation) for number, relation in enumerate(manifest.schema.relations)}
        original, halo, features = self.original_ids(), {}, {}
        for number, node_type in enumerate(types):
            own_halo = self._array(f"type{number}_halo", np.int32, (None,))
            self._check_ids(f"type{number}_halo", own_halo, 0, manifest.num_nodes[node_type])
            if len(own_halo):
                halo[node_type] = own_halo
            if node_type in manifest.features:
                features[node_type] = self.features(node_type)
        labels, splits = None, {}
        if manifest.target is not None:
            owned = manifest.owned(manifest.target, self._number)
            if manifest.labels == "multi":
                labels = self._array("labels", np.uint8, (len(owned), manifest.num_classes))
            elif manifest.labels is not None:
                labels = self._array("labels", np.int32, (len(owned),))
                self._check_ids("labels", labels, -1, manifest.num_classes)
            for split in manifest.splits:
                splits[split] = self._array(f"split_{split}", np.int32, (None,))
                self._check_ids(f"split_{split}", splits[split], owned.start, owned.stop)
        links = {}
        for split in manifest.links[1] if manifest.links is not None else ():
            links[split] = self._array(f"links_{split}", np.int32, (None, 3))
        return Part(manifest, self._number, original, features, edges, halo, labels, splits, links)

    def _edges(self, number: int, relation: Relation) -> EdgeSet:
        manifest, name = self._manifest, f"relation{number}"
        count = int(manifest.num_edges[relation][self._number])
        owned = len(manifest.owned(relation.target, self._number))
        indptr = self._array(f"{name}_indptr", np.int64, (owned + 1,))
        senders = self._array(f"{name}_senders", np.int32, (count,))
        if int(indptr[0]) != 0 or int(indptr[-1]) != count or (np.diff(indptr) < 0).any():
            raise InputError(f"{self._path / f'{name}_indptr.npy'} must rise from 0 to {count}")
        self._check_ids(f"{name}_senders", senders, 0, manifest.num_nodes[relation.source])
        weights = self._array(f"{name}_weights", np.float32, (count,)) if f"{name}_weights" in self._arrays else None
        return EdgeSet(indptr, senders, weights)

    def features(self, node_type: str) -> Features:
        """The rows of a type that has features."""
        name = f"type{self._manifest.schema.node_types.index(node_type)}_features"
        layout, count = self._manifest.features[node_type], len(self._manifest.owned(node_type, self._number))
        if layout.kind == "dense":
            return self._array(name, np.float32, (count, layout.width))
        data = self._array(f"{name}_data", np.float32, (None,))
        indices = self._array(f"{name}_indices", np.int32, (len(data),))
        indptr = self._array(f"{name}_indptr", np.int64, (count + 1,))
        if int(indptr[0]) != 0 or int(indptr[-1]) != len(data) or (np.diff(indptr) < 0).any():
            raise InputError(f"{self._path / f'{name}_indptr.npy'} must rise from 0 to {len(data)}")
        self._check_ids(f"{name}_indices", indices, 0, layout.width)
        return sparse.csr_array((data, indices, indptr), shape=(count, layout.width))

    def _array(self, name: str, dtype: type, shape: tuple[int | None, ...]) -> np.ndarray:
        where = self._path / f"{name}.npy"
        if name not in self._arrays:
            raise InputError(f"{self._path / PART_FILE} names no array {name!r}, which {MANIFEST_FILE} calls for")
        written = self._arrays[name]
        check_file(where, written, PART_FILE, verify=self._verify)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                array = np.load(where, mmap_mode="r", allow_pickle=False)
        except NPY_DAMAGE as error:
            raise InputError(f"{where} is damaged ({error}); copy it again") from error
        fits = len(shape) == array.ndim and all(s in (None, n) for s, n in zip(shape, array.shape, strict=True))
        if not fits or array.dtype != dtype:
            needed = " x ".join("any" if one is None else str(one) for one in shape)
            raise InputError(f"{where} has shape {array.shape} of {array.dtype}; need {needed} of {dtype.__name__}")
        return array

    def _check_ids(self, name: str, ids: np.ndarray, low: int, high: int) -> None:
        if len(ids) and (int(ids.min()) < low or int(ids.max()) >= high):
            row = int(np.argmax((ids < low) | (ids >= high)))
            raise InputError(
                f"{self._path / f'{name}.npy'} has {int(ids[row])} at entry {row}; need {low} to {high - 1}"
            )


def merge_parts(parts: "list[Part]", *, original_ids: bool = False) -> HeteroGraph:
    """The whole graph of all parts, in new ids, or in those before partitioning.

    Args:
        parts: all of one partitioning, by number.
        original_ids: give every node the id that it had.

    Raises:
        InputError: parts are missing, or belong to different partitionings; original ids are not a permutation.
    """
    manifest = parts[0].manifest
    numbers = [part.number for part in parts]
    if numbers != list(range(manifest.num_parts)) or any(part.manifest.identity != manifest.identity for part in parts):
        raise InputError(f"parts {numbers} of a partitioning into {manifest.num_parts}; need all of them, in order")
    old = {name: np.concatenate([part.original_ids[name] for part in parts]) for name in manifest.schema.node_types}
    if not original_ids:
        old = {name: np.arange(len(ids), dtype=np.int32) for name, ids in old.items()}
    rows = {name: _inverse(ids, name) for name, ids in old.items()}  # where each final id stands in the new order
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for relation in manifest.schema.relations:
        own = [part.edges[relation] for part in parts]
        senders = old[relation.source][np.concatenate([each.senders for each in own])]
        receivers = np.concatenate(
            [each.receivers + part.owned(relation.target).start for part, each in zip(parts, own, strict=True)]
        )
        weights = [each.weights for each in own if each.weights is not None]
        edges[relation] = (senders, old[relation.target][receivers]) + ((np.concatenate(weights),) if weights else ())
    features: dict[str, Features] = {}
    for name in manifest.features:
        blocks = [part.features[name] for part in parts]
        dense = all(isinstance(block, np.ndarray) for block in blocks)
        whole = np.concatenate(blocks) if dense else sparse.csr_array(sparse.vstack(blocks))
        features[name] = whole[rows[name]]
    labels, splits, links = None, {}, None
    if manifest.target is not None:
        if manifest.labels is not None:
            labels = np.concatenate([part.labels for part in parts if part.labels is not None])[rows[manifest.target]]
        splits = {s: old[manifest.target][np.concatenate([part.splits[s] for part in parts])] for s in manifest.splits}
    if manifest.links is not None:
        links = LinkTriples(manifest.links[0], {s: _old_links(parts, s, old) for s in manifest.links[1]})
    return HeteroGraph.from_arrays(
        num_nodes=manifest.num_nodes,
        edges=edges,
        features=features,
        target=manifest.target,
        labels=labels,
        num_classes=manifest.num_classes if labels is not None else None,
        splits=splits,
        links=links,
        name=manifest.graph_name,
        where=f"partition of {manifest.graph_name}",
    )


def _inverse(ids: np.ndarray, node_type: str) -> np.ndarray:
    rows = np.full(len(ids), -1, np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= len(ids)):
        raise InputError(f"original ids of {node_type!r} reach {int(ids.max())}; need 0 to {len(ids) - 1}")
    rows[ids] = np.arange(len(ids))
    if (rows < 0).any():
        raise InputError(f"no part owns {node_type} {int(np.argmin(rows))}, whose original id none has")
    return rows


def _old_links(parts: "list[Part]", split: str, old: Mapping[str, np.ndarray]) -> np.ndarray:
    manifest = parts[0].manifest
    assert manifest.links is not None
    triples = np.concatenate([part.links[split] for part in parts])
    for number, relation in enumerate(manifest.links[0]):
        of = triples[:, 1] == number
        triples[of, 0] = old[relation.source][triples[of, 0]]
        triples[of, 2] = old[relation.target][triples[of, 2]]
    return triples
