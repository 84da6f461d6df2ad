"""What every process reads of a graph in parts: all edges, labels, splits and owners, mapped into memory, and no rows.

The folder `topology` holds the graph without its features in jhgnn's own format, in the ids of the data, the part that
owns each node, and a list of its files with their checksums. Processes of one machine share its pages.
"""

import dataclasses
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from jhgnn.data.array_files import NPY_DAMAGE
from jhgnn.data.storage import load_graph, save_graph
from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.checked_files import check_file, file_crc32, write_checked_array, write_checked_json
from jhgnn.distributed.manifest import MANIFEST_FILE, Manifest, read_json, read_manifest
from jhgnn.distributed.part_rows import PartRows
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.hetero_graph import HeteroGraph

TOPOLOGY, FILES = "topology", "files.json"


def write_topology(graph: HeteroGraph, assignment: Assignment, folder: Path, identity: str) -> int:
    """Writes the folder `topology` of a partition; the CRC-32 of its list of files.

    Args:
        folder: of the partition.
        identity: of the partitioning.
    """
    own = save_graph(dataclasses.replace(graph, features={}, columns={}), folder / TOPOLOGY)
    files: dict[str, Any] = {
        path.name: {"bytes": path.stat().st_size, "crc32": file_crc32(path)} for path in sorted(own.iterdir())
    }
    for number, node_type in enumerate(graph.schema.node_types):
        name = _owners_file(number)
        files[name] = write_checked_array(own / name, assignment.parts[node_type].astype(np.int32))
    columns = {name: [dataclasses.asdict(each) for each in parts] for name, parts in graph.columns.items()}
    return write_checked_json(own / FILES, {"identity": identity, "files": files, "columns": columns})


def read_topology(folder: str | Path, *, target: str | None = None) -> HeteroGraph:
    """The graph of a folder of parts, whose edges are mapped into memory and whose features are `PartRows`.

    Args:
        folder: of the partition; of its parts none is opened.
        target: checked against the graph's.

    Raises:
        InputError: the topology was not written, or a file of it is missing, damaged or of another partitioning.
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    columns = check_topology(folder, manifest)["columns"]
    graph = load_graph(folder / TOPOLOGY, target=target)
    if dict(graph.num_nodes) != manifest.num_nodes:
        raise InputError(f"{folder / TOPOLOGY} is of another graph than {MANIFEST_FILE} beside it; write both again")
    rows = {
        name: PartRows(folder, name, (manifest.num_nodes[name], layout.width), layout.longest, layout.kind == "csr")
        for name, layout in manifest.features.items()
    }
    return dataclasses.replace(
        graph,
        features=cast(Any, rows),
        columns={name: tuple(FeatureColumn(**each) for each in parts) for name, parts in columns.items()},
    )


def read_owners(folder: str | Path) -> Assignment:
    """The owner of every node by its id in the data, as the topology has them; of the parts none is opened.

    Raises:
        InputError: as `read_topology`, or an owner is no part.
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    if manifest.topology is None:
        check_topology(folder, manifest)
    parts = {}
    for number, (node_type, count) in enumerate(manifest.num_nodes.items()):
        where = folder / TOPOLOGY / _owners_file(number)
        try:
            owners = np.load(where, allow_pickle=False)
        except (FileNotFoundError, *NPY_DAMAGE) as error:
            raise InputError(f"{where} cannot be read ({error}); copy it again") from error
        if owners.shape != (count,) or owners.dtype != np.int32:
            raise InputError(f"{where} has shape {owners.shape} of {owners.dtype}; need {count} of int32")
        parts[node_type] = owners
    return Assignment(manifest.num_parts, parts, manifest.method)


def check_topology(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Compares every file of the topology with the list of them; that list.

    Raises:
        InputError: as `read_topology`.
    """
    where = folder / TOPOLOGY / FILES
    if manifest.topology is None:
        raise InputError(
            f"{folder} was written without the folder {TOPOLOGY!r}, from which processes read edges; write it again"
            " with python -m jhgnn.partition, or leave out distributed.read"
        )
    content = read_json(where, f"{folder} is no whole partition")
    if content.get("identity") != manifest.identity:
        raise InputError(
            f"{where} is of another partitioning ({content.get('identity')}) than {MANIFEST_FILE}"
            f" ({manifest.identity}); copy the folders of one partitioning together"
        )
    checksum = zlib.crc32(where.read_bytes())
    if checksum != manifest.topology:
        raise InputError(
            f"{where} has the checksum {checksum:08x}, but {MANIFEST_FILE} has {manifest.topology:08x} for it; write"
            " the partition again"
        )
    for name, written in content["files"].items():
        check_file(where.with_name(name), written, FILES)
    return content


def _owners_file(number: int) -> str:
    return f"type{number}_owners.npy"
