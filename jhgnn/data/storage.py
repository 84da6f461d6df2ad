"""jhgnn's own format: a folder of `.npy` files with a `schema.json`, memory-mapped on load. No pickle.

`schema.json` names types, relations, target and splits in their order, and counts what each array must hold; arrays are
numbered (`type0_features.npy`, `relation3_senders.npy`), so that names need not be file names. Keys that are strings
are stored as one block of UTF-8 and the offsets in it.
"""

import dataclasses
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from jhgnn.data.array_files import NPY_DAMAGE
from jhgnn.data.labelled import check_target
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.hetero_graph import SPLITS, EdgeSet, Features, HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation, Schema
from jhgnn.graph.texts import Texts
from jhgnn.runtime.files import replacing_folder
from jhgnn.runtime.storage_cause import cause, of_storage

FORMAT, VERSION = "jhgnn-heterograph", 1
SCHEMA_FILE = "schema.json"


def save_graph(graph: HeteroGraph, path: str | Path, *, overwrite: bool = False) -> Path:
    """Writes the folder `path`: beside it under a temporary name, synced, then renamed.

    Raises:
        InputError: an argument is of another type; `path` exists and is not to be overwritten, or is no graph of this
            format; it cannot be written.
    """
    if not isinstance(graph, HeteroGraph):
        raise InputError(f"save_graph: graph must be a HeteroGraph, not {type(graph).__name__}")
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"save_graph: path must be the path of a folder, not {type(path).__name__}")
    path = Path(path).expanduser()
    if path.exists():
        if not overwrite:
            raise InputError(f"{path} exists; choose another path, or overwrite it on purpose")
        if not (path / SCHEMA_FILE).is_file():
            raise InputError(f"{path} is not a saved graph (no {SCHEMA_FILE}), so it is not overwritten")
    try:
        with replacing_folder(path) as temporary:
            schema = _write_arrays(graph, temporary)
            with open(temporary / SCHEMA_FILE, "w", encoding="utf-8") as file:
                json.dump(schema, file, indent=2, ensure_ascii=False)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def load_graph(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    check_values: bool = True,
) -> HeteroGraph:
    """Maps a saved graph into memory; arrays are read-only and read from disk when touched.

    Args:
        path: the folder.
        target: checked against the graph's.
        seed: unused, splits are stored.
        progress: unused.
        check_values: read all features once, to refuse what is not finite. Ids are always checked: kernels index
            with them.

    Raises:
        InputError: a file is missing, damaged, pickled, of another version, or disagrees with `schema.json`.
    """
    if path is None:
        raise InputError("jhgnn: no path is given; need the folder of a saved graph")
    path = Path(path).expanduser()
    folder = _Folder(path, _read_schema(path))
    try:
        graph = folder.graph(check_values)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path / SCHEMA_FILE}: entry missing or of the wrong type: {error}") from error
    if target is not None:
        if graph.target is None:
            raise InputError(f"{path} has no labels, so no target {target!r}")
        check_target(str(path), graph.target, target)
    return graph


def _write_arrays(graph: HeteroGraph, folder: Path) -> dict[str, Any]:
    def write(name: str, array: np.ndarray) -> None:
        with open(folder / f"{name}.npy", "wb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())

    types = []
    for number, node_type in enumerate(graph.schema.node_types):
        entry: dict[str, Any] = {"name": node_type, "num_nodes": graph.num_nodes[node_type], "features": None}
        matrix = graph.features.get(node_type)
        if isinstance(matrix, np.ndarray):
            entry["features"] = {"kind": "dense", "width": int(matrix.shape[1])}
            write(f"type{number}_features", matrix)
        elif matrix is not None:
            entry["features"] = {"kind": "csr", "width": int(matrix.shape[1]), "nonzeros": int(matrix.nnz)}
            for part in ("data", "indices", "indptr"):
                write(f"type{number}_features_{part}", getattr(matrix, part))
        if node_type in graph.columns:
            entry["columns"] = [dataclasses.asdict(column) for column in graph.columns[node_type]]
        keys = graph.keys.get(node_type)
        if keys is not None and keys.dtype.kind == "i":
            entry["keys"] = "integers"
            write(f"type{number}_keys", keys)
        elif keys is not None:
            entry["keys"] = "strings"
            texts = Texts.from_strings(keys.tolist())
            write(f"type{number}_keys", texts.data)
            write(f"type{number}_keys_offsets", np.append(texts.starts, len(texts.data)))
        if node_type in graph.node_times:
            entry["times"] = True
            write(f"type{number}_times", graph.node_times[node_type])
        types.append(entry)
    relations = []
    for number, relation in enumerate(graph.schema.relations):
        edges = graph.edges[relation]
        columns = graph.edge_columns.get(str(relation), ()) if edges.features is not None else ()
        relations.append(
            {
                "source": relation.source,
                "name": relation.name,
                "target": relation.target,
                "num_edges": edges.num_edges,
                "weights": edges.weights is not None,
                "times": edges.times is not None,
                "features": None if edges.features is None else int(edges.features.shape[1]),
                "columns": [dataclasses.asdict(column) for column in columns],
            }
        )
        write(f"relation{number}_indptr", edges.indptr)
        write(f"relation{number}_senders", edges.senders)
        if edges.weights is not None:
            write(f"relation{number}_weights", edges.weights)
        if edges.times is not None:
            write(f"relation{number}_times", edges.times)
        if edges.features is not None:
            write(f"relation{number}_features", edges.features)
    # In the types that they are read in, which those of a graph by `dataclasses.replace` need not have.
    if graph.labels is not None:
        write("labels", graph.labels.astype(np.uint8 if graph.multi_label else np.int32, copy=False))
    for split, ids in graph.splits.items():
        write(f"split_{split}", ids.astype(np.int32, copy=False))
    links = None
    if graph.links is not None:
        relations_of_links = [graph.schema.relations.index(relation) for relation in graph.links.relations]
        links = {"relations": relations_of_links, "splits": list(graph.links.triples)}
        for split, triples in graph.links.triples.items():
            write(f"links_{split}", triples)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "node_types": types,
        "relations": relations,
        "target": graph.target,
        "labels": None if graph.labels is None else ("multi" if graph.multi_label else "single"),
        "num_classes": graph.num_classes,
        "class_names": list(graph.class_names),
        "time_unit": graph.time_unit,
        "splits": list(graph.splits),
        "links": links,
    }


def _read_schema(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise InputError(
            f"jhgnn: {path} {'is not a folder' if path.exists() else 'does not exist'}; need a saved graph"
        )
    where = path / SCHEMA_FILE
    try:
        schema = json.loads(where.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{where} is missing: not a saved graph") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where} cannot be read: {error}") from error
    if not isinstance(schema, dict) or schema.get("format") != FORMAT:
        raise InputError(f"{where} is not of format {FORMAT!r}")
    if schema.get("version") != VERSION:
        raise InputError(f"{where} is of version {schema.get('version')!r}; this release reads version {VERSION}")
    return schema


class _Folder:
    def __init__(self, path: Path, schema: dict[str, Any]) -> None:
        self._path, self._schema = path, schema

    def graph(self, check_values: bool) -> HeteroGraph:
        schema = self._schema
        num_nodes = {entry["name"]: entry["num_nodes"] for entry in schema["node_types"]}
        for name, count in num_nodes.items():
            if type(count) is not int or not 0 <= count < 2**31:
                raise InputError(f"{self._path / SCHEMA_FILE}: node type {name!r} has {count!r} nodes")
        relations = tuple(Relation(entry["source"], entry["name"], entry["target"]) for entry in schema["relations"])
        types = tuple(entry["name"] for entry in schema["node_types"])
        checked = Schema(types, relations)
        features = {
            entry["name"]: self._features(number, entry, check_values)
            for number, entry in enumerate(schema["node_types"])
            if entry["features"] is not None
        }
        edges = {
            relation: self._edges(number, entry, num_nodes, check_values)
            for number, (relation, entry) in enumerate(zip(relations, schema["relations"], strict=True))
        }
        target, labels, splits = schema["target"], None, {}
        num_classes = schema["num_classes"]
        if type(num_classes) is not int or num_classes < 0 or not isinstance(schema["name"], str):
            raise TypeError(f"name {schema['name']!r} or num_classes {num_classes!r}")
        if target is not None and target not in num_nodes:
            raise InputError(f"{self._path / SCHEMA_FILE}: target {target!r} is not a node type")
        if schema["labels"] is not None or schema["splits"]:
            # Labels and splits are small: checked as any array from outside, by building their type alone.
            if schema["labels"] is not None:
                multi = schema["labels"] == "multi"
                labels = self._array("labels", 2, np.uint8) if multi else self._array("labels", 1, np.int32)
            alone = HeteroGraph.from_arrays(
                num_nodes={target: num_nodes[target]},
                edges={},
                target=target,
                labels=labels,
                num_classes=num_classes if labels is not None else None,
                splits={split: self._array(f"split_{_split(split)}", 1, np.int32) for split in schema["splits"]},
                where=str(self._path),
            )
            splits = dict(alone.splits)
        links = self._links(relations, num_nodes, edges) if schema.get("links") is not None else None
        class_names = tuple(schema.get("class_names", ()))
        if class_names and len(class_names) != num_classes:
            raise InputError(f"{self._path / SCHEMA_FILE}: {len(class_names)} class names for {num_classes} classes")
        entries = list(enumerate(schema["node_types"]))
        return HeteroGraph(
            schema["name"],
            checked,
            num_nodes,
            features,
            edges,
            target,
            labels,
            num_classes,
            splits,
            links,
            {entry["name"]: self._keys(number, entry) for number, entry in entries if entry.get("keys")},
            {
                entry["name"]: self._array(f"type{number}_times", 1, np.int64, length=entry["num_nodes"])
                for number, entry in entries
                if entry.get("times")
            },
            schema.get("time_unit", ""),
            class_names,
            {
                entry["name"]: self._columns(entry, entry["features"]["width"])
                for _, entry in entries
                if entry.get("columns")
            },
            {
                str(relation): self._columns(entry, entry["features"])
                for relation, entry in zip(relations, schema["relations"], strict=True)
                if entry.get("columns")
            },
        )

    def _keys(self, number: int, entry: dict[str, Any]) -> np.ndarray:
        name, count = f"type{number}_keys", entry["num_nodes"]
        if entry["keys"] == "integers":
            return self._array(name, 1, np.int64, length=count)
        if entry["keys"] != "strings":
            raise InputError(f"{self._path / SCHEMA_FILE}: keys of {entry['name']!r} are {entry['keys']!r}")
        data = self._array(name, 1, np.uint8)
        offsets = self._array(f"{name}_offsets", 1, np.int64, length=count + 1)
        if int(offsets[0]) != 0 or int(offsets[-1]) != len(data) or (np.diff(offsets) < 0).any():
            raise InputError(f"{self._path / name}_offsets.npy must rise from 0 to {len(data)}")
        try:
            return Texts(data, offsets[:-1], np.diff(offsets)).strings()
        except UnicodeDecodeError as error:
            raise InputError(f"{self._path / name}.npy is not UTF-8 text: {error}") from None

    def _columns(self, entry: dict[str, Any], width: int) -> tuple[FeatureColumn, ...]:
        columns = tuple(FeatureColumn(**column) for column in entry["columns"])
        if sum(column.width for column in columns) != width:
            raise InputError(f"{self._path / SCHEMA_FILE}: columns of {entry['name']!r} do not add up to its features")
        return columns

    def _links(
        self, relations: tuple[Relation, ...], num_nodes: dict[str, int], edges: dict[Relation, EdgeSet]
    ) -> LinkTriples:
        entry = self._schema["links"]
        numbers = entry["relations"]
        if any(type(number) is not int or not 0 <= number < len(relations) for number in numbers):
            raise InputError(f"{self._path / SCHEMA_FILE}: links name the relations {numbers!r}")
        triples = {split: np.array(self._array(f"links_{_split(split)}", 2, np.int32)) for split in entry["splits"]}
        links = LinkTriples(tuple(relations[number] for number in numbers), triples)
        links.check(num_nodes, edges, str(self._path))
        return links

    def _array(self, name: str, ndim: int, *dtypes: type, length: int | None = None) -> np.ndarray:
        where = self._path / f"{name}.npy"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # headers written by Python 2 are read all the same
                array = np.load(where, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise InputError(f"{where} is missing, but {SCHEMA_FILE} names it") from None
        except NPY_DAMAGE as error:
            if "Python objects" in str(error) or "pickle" in str(error):
                raise InputError(f"{where} is a pickle or holds Python objects; need plain numbers") from error
            if of_storage(error):  # of which the file itself is no cause
                raise InputError(f"{where} cannot be read: {cause(error)}") from error
            raise InputError(f"{where} is damaged or truncated ({error})") from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise InputError(f"{where} is an archive, not a single array")
        if array.ndim != ndim or array.dtype not in dtypes:
            needed = " or ".join(dtype.__name__ for dtype in dtypes)
            raise InputError(f"{where} has shape {array.shape} of {array.dtype}; need {ndim} dimensions of {needed}")
        if length is not None and len(array) != length:
            raise InputError(f"{where} has {len(array)} rows; need {length}")
        return array

    def _features(self, number: int, entry: dict[str, Any], check_values: bool) -> Features:
        stored, count = entry["features"], entry["num_nodes"]
        name, width = f"type{number}_features", stored["width"]
        if stored["kind"] == "dense":
            matrix: Features = self._array(name, 2, np.float32, length=count)
            values = matrix
            if matrix.shape[1] != width:
                raise InputError(f"{self._path / name}.npy has {matrix.shape[1]} columns; need {width}")
        elif stored["kind"] == "csr":
            indptr = self._array(f"{name}_indptr", 1, np.int32, np.int64, length=count + 1)
            indices = self._array(f"{name}_indices", 1, np.int32, np.int64, length=stored["nonzeros"])
            values = self._array(f"{name}_data", 1, np.float32, length=stored["nonzeros"])
            self._check_compressed(name, indptr, indices, width)
            matrix = sparse.csr_array((values, indices, indptr), shape=(count, width))
        else:
            raise InputError(f"{self._path / SCHEMA_FILE}: features of {entry['name']!r} are {stored['kind']!r}")
        if check_values:
            rows = max(1, (1 << 24) // max(1, width))
            for start in range(0, len(values), rows):
                if not np.isfinite(values[start : start + rows]).all():
                    kind = "rows" if stored["kind"] == "dense" else "entries"
                    raise InputError(
                        f"{self._path}: features of {entry['name']!r} are not finite in {kind} {start} to"
                        f" {min(start + rows, len(values)) - 1}"
                    )
        return matrix

    def _edges(self, number: int, entry: dict[str, Any], num_nodes: dict[str, int], check_values: bool) -> EdgeSet:
        name, count = f"relation{number}", entry["num_edges"]
        indptr = self._array(f"{name}_indptr", 1, np.int64, length=num_nodes[entry["target"]] + 1)
        senders = self._array(f"{name}_senders", 1, np.int32, length=count)
        weights = self._array(f"{name}_weights", 1, np.float32, length=count) if entry["weights"] else None
        times = self._array(f"{name}_times", 1, np.int64, length=count) if entry.get("times") else None
        self._check_compressed(name, indptr, senders, num_nodes[entry["source"]])
        features = None
        if entry.get("features") is not None:
            features = self._array(f"{name}_features", 2, np.float32, length=count)
            if features.shape[1] != entry["features"]:
                raise InputError(
                    f"{self._path / name}_features.npy has {features.shape[1]} columns; need {entry['features']}"
                )
            if check_values and not np.isfinite(features).all():
                row = int(np.argmin(np.isfinite(features).all(axis=1)))
                raise InputError(f"{self._path / name}_features.npy is not finite in row {row}; need finite numbers")
        return EdgeSet(indptr, senders, weights, times, features)

    def _check_compressed(self, name: str, indptr: np.ndarray, indices: np.ndarray, width: int) -> None:
        where = self._path / f"{name}_indptr.npy"
        if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices) or (np.diff(indptr) < 0).any():
            raise InputError(f"{where} must rise from 0 to {len(indices)}")
        if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= width):
            row = int(np.argmax((indices < 0) | (indices >= width)))
            raise InputError(f"{self._path}: {name} has the id {indices[row]} at entry {row}; need 0 to {width - 1}")


def _split(name: str) -> str:
    if name not in SPLITS:
        raise InputError(f"{SCHEMA_FILE}: split {name!r} is unknown; need {', '.join(SPLITS)}")
    return name
