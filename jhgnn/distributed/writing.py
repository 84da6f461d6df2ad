"""Writing a folder of parts: under a temporary name, synced, then renamed, so that it is whole or not there."""

import dataclasses
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.checked_files import write_checked_array, write_checked_json
from jhgnn.distributed.manifest import (
    FORMAT,
    MANIFEST_FILE,
    PART_FILE,
    VERSION,
    FeatureLayout,
    Manifest,
    part_folder,
    to_json,
)
from jhgnn.distributed.numbering import Numbering, renumber
from jhgnn.distributed.part_cut import cut_edges, cut_features, cut_links, halo
from jhgnn.distributed.topology import write_topology
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.runtime.files import put_back, replacing_folder

Progress = Callable[[str], object]


def write_partition(
    graph: HeteroGraph,
    assignment: Assignment,
    path: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda line: None,
    beside: Callable[[Path], object] = lambda folder: None,
) -> Path:
    """Writes the parts of a heterograph, one after the other, with `partition.json` last.

    Each part's folder holds `.npy` arrays and `part.json`, which names them with their sizes and CRC-32; the folder
    `topology` what every process reads (`jhgnn.distributed.topology`). Nothing but the part that is being written is in
    memory beside the graph.

    Args:
        path: the folder to make.
        overwrite: replace a partition that is there already.
        progress: told a line about each part.
        beside: writes further files, such as a report, into the folder before it is renamed.

    Raises:
        InputError: the assignment does not fit the graph; `path` exists and is not to be overwritten, or is no
            partition; it cannot be written.
    """
    assignment.check(graph)
    path = Path(path).expanduser()
    check_free(path, overwrite=overwrite)
    numbering = renumber(assignment)
    manifest = _manifest(graph, assignment, numbering)
    try:
        with replacing_folder(path) as temporary:
            checksums = []
            for part in range(assignment.num_parts):
                checksums.append(_write_part(graph, numbering, manifest, part, part_folder(temporary, part)))
                progress(f"part {part} of {assignment.num_parts} written")
            topology = write_topology(graph, assignment, temporary, manifest.identity)
            beside(temporary)
            manifest = dataclasses.replace(manifest, checksums=tuple(checksums), topology=topology)
            write_checked_json(temporary / MANIFEST_FILE, to_json(manifest))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raises InputError where a partition must not be written: something is there that is not to be replaced.

    A partition that was there when a process was killed in the middle of replacing it is put back first.
    """
    try:
        put_back(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path} exists; choose another folder, or replace it with --overwrite")
    if not (path / MANIFEST_FILE).is_file():
        raise InputError(f"{path} is not a partition (no {MANIFEST_FILE}), so it is not overwritten")


def _manifest(graph: HeteroGraph, assignment: Assignment, numbering: Numbering) -> Manifest:
    num_parts = assignment.num_parts
    num_edges = {}
    for relation, edges in graph.edges.items():
        degrees = np.diff(edges.indptr)
        into = np.bincount(assignment.parts[relation.target], weights=degrees, minlength=num_parts)
        num_edges[relation] = into.astype(np.int64)
    features = {
        name: FeatureLayout("dense", int(matrix.shape[1]))
        if isinstance(matrix, np.ndarray)
        else FeatureLayout("csr", int(matrix.shape[1]), int(np.diff(matrix.indptr).max(initial=0)))
        for name, matrix in graph.features.items()
    }
    links = None if graph.links is None else (graph.links.relations, tuple(graph.links.triples))
    return Manifest(
        identity=_identity(graph, assignment),
        graph_name=graph.name,
        method=assignment.method,
        seed=assignment.seed,
        num_parts=num_parts,
        schema=graph.schema,
        offsets=numbering.offsets,
        num_edges=num_edges,
        features=features,
        target=graph.target,
        labels=None if graph.labels is None else "multi" if graph.multi_label else "single",
        num_classes=graph.num_classes,
        splits=tuple(graph.splits),
        links=links,
        checksums=(0,) * num_parts,
    )


def _identity(graph: HeteroGraph, assignment: Assignment) -> str:
    """A digest of who owns what, and of the edges; two partitionings differ in it, written twice the same do not."""
    digest = hashlib.sha256(f"{graph.name} {assignment.method} {assignment.seed} {assignment.num_parts}".encode())
    for node_type, parts in assignment.parts.items():
        digest.update(f"{node_type} {len(parts)} ".encode() + np.ascontiguousarray(parts, np.int32).tobytes())
    for relation, edges in graph.edges.items():
        digest.update(f"{relation} {edges.num_edges} {zlib.crc32(np.ascontiguousarray(edges.senders).data)}".encode())
    return digest.hexdigest()[:32]


def _write_part(graph: HeteroGraph, numbering: Numbering, manifest: Manifest, part: int, folder: Path) -> int:
    """Writes one part's folder; the CRC-32 of its `part.json`."""
    folder.mkdir()
    arrays: dict[str, dict[str, Any]] = {}

    def write(name: str, array: np.ndarray) -> None:
        arrays[name] = write_checked_array(folder / f"{name}.npy", np.ascontiguousarray(array))

    edges = {}
    for number, relation in enumerate(graph.schema.relations):
        own = edges[relation] = cut_edges(graph, relation, numbering, part)
        write(f"relation{number}_indptr", own.indptr)
        write(f"relation{number}_senders", own.senders)
        if own.weights is not None:
            write(f"relation{number}_weights", own.weights)
    beyond = halo(edges, numbering, part)
    for number, node_type in enumerate(graph.schema.node_types):
        low, high = numbering.offsets[node_type][part : part + 2]
        write(f"type{number}_original_ids", numbering.original[node_type][low:high])
        write(f"type{number}_halo", beyond.get(node_type, np.zeros(0, np.int32)))
        if node_type in graph.features:
            matrix = cut_features(graph, node_type, numbering, part)
            if isinstance(matrix, np.ndarray):
                write(f"type{number}_features", matrix)
            else:
                write(f"type{number}_features_data", matrix.data)
                write(f"type{number}_features_indices", matrix.indices.astype(np.int32))
                write(f"type{number}_features_indptr", matrix.indptr.astype(np.int64))
    if graph.target is not None:
        low, high = numbering.offsets[graph.target][part : part + 2]
        if graph.labels is not None:
            write("labels", graph.labels[numbering.original[graph.target][low:high]])
        for split, ids in graph.splits.items():
            new = np.sort(numbering.new[graph.target][ids])
            write(f"split_{split}", new[(new >= low) & (new < high)])
    if graph.links is not None:
        for split in graph.links.triples:
            write(f"links_{split}", cut_links(graph, split, numbering, part))
    content = {"format": FORMAT, "version": VERSION, "identity": manifest.identity, "part": part, "arrays": arrays}
    return write_checked_json(folder / PART_FILE, content)
