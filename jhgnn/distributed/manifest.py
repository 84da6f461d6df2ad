"""`partition.json`: what a folder of parts holds, without any array; every process reads it, and then its own part.

Its keys `graph_name`, `part_method`, `num_parts`, `halo_hops`, `node_map`, `edge_map`, `ntypes`, `etypes`, `num_nodes`
and `num_edges` are those of a DistDGL partition, with the same meaning: ids there run over all types, part by part and
type by type within a part. Everything else here counts each type from 0.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS
from jhgnn.graph.schema import Relation, Schema

FORMAT, VERSION = "jhgnn-partition", 1
MANIFEST_FILE, PART_FILE = "partition.json", "part.json"
HALO_HOPS = 1


@dataclasses.dataclass(frozen=True)
class FeatureLayout:
    """How the features of a type are stored: `dense`, or `csr` for sparse ones; `width` columns of float32.

    `longest` is the most values that a row of a sparse matrix stores; 0 for dense ones, or where it was not written.
    """

    kind: str
    width: int
    longest: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Manifest:
    """A partitioning.

    Attributes:
        identity: names this partitioning; its parts carry it, those of another one do not.
        graph_name, method, seed, num_parts: as in `Assignment`.
        schema: node types and relations.
        offsets: node type -> int64 `[num_parts + 1]`, the ranges of new ids: see `Numbering`.
        num_edges: relation -> int64 `[num_parts]`, edges into the nodes that a part owns.
        features: node type -> layout; a type without features is absent.
        target: the labelled type, or None.
        labels: `single`, `multi`, or None without labels.
        num_classes: 0 without labels.
        splits: those that the target type has.
        links: the relations of a published link split, or None; and its splits.
        checksums: CRC-32 of each part's `part.json`, which has those of its arrays.
        topology: CRC-32 of the list of files of the replicated topology, or None where it was not written.
    """

    identity: str
    graph_name: str
    method: str
    seed: int
    num_parts: int
    schema: Schema
    offsets: Mapping[str, np.ndarray]
    num_edges: Mapping[Relation, np.ndarray]
    features: Mapping[str, FeatureLayout]
    target: str | None
    labels: str | None
    num_classes: int
    splits: tuple[str, ...]
    links: tuple[tuple[Relation, ...], tuple[str, ...]] | None
    checksums: tuple[int, ...]
    topology: int | None = None

    @property
    def num_nodes(self) -> dict[str, int]:
        return {node_type: int(offsets[-1]) for node_type, offsets in self.offsets.items()}

    def owned(self, node_type: str, part: int) -> range:
        """The new ids that a part owns."""
        offsets = self.offsets[node_type]
        return range(int(offsets[part]), int(offsets[part + 1]))


def part_folder(folder: Path, part: int) -> Path:
    return folder / f"part{part}"


def to_json(manifest: Manifest) -> dict[str, Any]:
    """The content of `partition.json`."""
    types, relations = manifest.schema.node_types, manifest.schema.relations
    node_counts = [np.diff(manifest.offsets[node_type]) for node_type in types]
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "identity": manifest.identity,
        "graph_name": manifest.graph_name,
        "part_method": manifest.method,
        "seed": manifest.seed,
        "num_parts": manifest.num_parts,
        "halo_hops": HALO_HOPS,
        "ntypes": {node_type: number for number, node_type in enumerate(types)},
        "etypes": {str(relation): number for number, relation in enumerate(relations)},
        "num_nodes": int(sum(counts.sum() for counts in node_counts)),
        "num_edges": int(sum(counts.sum() for counts in manifest.num_edges.values())),
        "node_map": dict(zip(types, _running_ranges(node_counts), strict=True)),
        "edge_map": dict(
            zip(map(str, relations), _running_ranges([manifest.num_edges[r] for r in relations]), strict=True)
        ),
        "features": {name: dataclasses.asdict(layout) for name, layout in manifest.features.items()},
        "target": manifest.target,
        "labels": manifest.labels,
        "num_classes": manifest.num_classes,
        "splits": list(manifest.splits),
        "links": None,
        "topology": manifest.topology,
    }
    if manifest.links is not None:
        content["links"] = {"relations": [str(r) for r in manifest.links[0]], "splits": list(manifest.links[1])}
    for part, checksum in enumerate(manifest.checksums):
        content[f"part-{part}"] = {"folder": f"part{part}", "crc32": checksum}
    return content


def read_manifest(folder: str | Path) -> Manifest:
    """Reads `partition.json` of a folder of parts.

    Raises:
        InputError: the folder or the file is missing, it is of another format or version, or an entry is wrong.
    """
    folder = Path(folder).expanduser()
    where = folder / MANIFEST_FILE
    if not folder.is_dir():
        raise InputError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}; need a partition")
    content = read_json(where, f"{folder} is no partition, or one that was cut short")
    if content.get("format") != FORMAT:
        raise InputError(f"{where} is not of format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise InputError(f"{where} is of version {content.get('version')!r}; this release reads version {VERSION}")
    try:
        return _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{where}: entry missing or wrong: {error}") from error


def read_json(path: Path, otherwise: str) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        InputError: it is missing, which means `otherwise`, or is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {otherwise}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object")
    return content


def _from_json(content: Mapping[str, Any]) -> Manifest:
    num_parts = content["num_parts"]
    if type(num_parts) is not int or num_parts < 1:
        raise ValueError(f"num_parts is {num_parts!r}")
    types = in_order(content["ntypes"])
    relations = tuple(relation_from(name) for name in in_order(content["etypes"]))
    schema = Schema(types, relations)
    node_counts = counts_of_map(content["node_map"], types, num_parts, "node_map")
    edge_counts = counts_of_map(content["edge_map"], in_order(content["etypes"]), num_parts, "edge_map")
    links = None
    if content["links"] is not None:
        links = (
            tuple(relation_from(name) for name in content["links"]["relations"]),
            _splits(content["links"]["splits"]),
        )
    if content["target"] is not None and content["target"] not in types:
        raise ValueError(f"target {content['target']!r} is not a node type")
    if content["labels"] not in (None, "single", "multi"):
        raise ValueError(f"labels are {content['labels']!r}")
    return Manifest(
        identity=str(content["identity"]),
        graph_name=str(content["graph_name"]),
        method=str(content["part_method"]),
        seed=int(content["seed"]),
        num_parts=num_parts,
        schema=schema,
        offsets={
            name: np.concatenate([[0], np.cumsum(counts)]) for name, counts in zip(types, node_counts, strict=True)
        },
        num_edges=dict(zip(relations, edge_counts, strict=True)),
        features={
            name: FeatureLayout(str(one["kind"]), int(one["width"]), int(one.get("longest", 0)))
            for name, one in content["features"].items()
        },
        target=content["target"],
        labels=content["labels"],
        num_classes=int(content["num_classes"]),
        splits=_splits(content["splits"]),
        links=links,
        checksums=tuple(int(content[f"part-{part}"]["crc32"]) for part in range(num_parts)),
        topology=None if content.get("topology") is None else int(content["topology"]),
    )


def in_order(numbered: Mapping[str, int]) -> tuple[str, ...]:
    """Names by their number, which must run from 0.

    Raises:
        ValueError: they do not.
    """
    names = sorted(numbered, key=lambda name: numbered[name])
    if [numbered[name] for name in names] != list(range(len(names))):
        raise ValueError(f"numbers of {', '.join(names)} do not run from 0")
    return tuple(names)


def relation_from(text: str) -> Relation:
    """A relation from `source:name:target`.

    Raises:
        ValueError: it is written in another way.
    """
    ends = text.split(":")
    if len(ends) != 3:
        raise ValueError(f"edge type {text!r} is not written source:name:target")
    return Relation(*ends)


def counts_of_map(
    ranges: Mapping[str, Sequence[Any]], names: Sequence[str], num_parts: int, what: str
) -> list[np.ndarray]:
    """How many ids of each name stand in each part, int64 `[num_parts]`, from the ranges of a `node_map` or `edge_map`.

    Raises:
        ValueError: a name has no ranges or too few, or the ranges leave gaps, overlap or stand in another order.
    """
    if set(ranges) != set(names):
        raise ValueError(f"{what} is of {', '.join(ranges)}; need {', '.join(names)}")
    pairs = {}
    for name in names:
        # DistDGL before 0.9 kept the ends alone.
        ends = [end if isinstance(end, list) else [None, end] for end in ranges[name]]
        if len(ends) != num_parts:
            raise ValueError(f"{what} of {name!r} has {len(ends)} ranges for {num_parts} parts")
        pairs[name] = ends
    at = 0
    counts = {name: np.zeros(num_parts, np.int64) for name in names}
    for part in range(num_parts):
        for name in names:
            start, end = pairs[name][part]
            start = at if start is None else start
            if type(start) is not int or type(end) is not int or start != at or end < start:
                raise ValueError(f"{what} of {name!r} in part {part} is {start} to {end}; need a start of {at}")
            counts[name][part] = end - start
            at = end
    return [counts[name] for name in names]


def _running_ranges(counts: Sequence[np.ndarray]) -> list[list[list[int]]]:
    """For each type the range in each part, numbered part by part and within a part type by type."""
    table = np.stack(counts, axis=1) if counts else np.zeros((0, 0), np.int64)  # [parts, types]
    ends = np.cumsum(table.reshape(-1)).reshape(table.shape)
    return [
        [[int(ends[part, one] - table[part, one]), int(ends[part, one])] for part in range(len(table))]
        for one in range(len(counts))
    ]


def _splits(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in SPLITS:
            raise ValueError(f"split {name!r} is unknown; need {', '.join(SPLITS)}")
    return tuple(names)
