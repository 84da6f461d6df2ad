"""DGL's chunked graph format, the input of its distributed partitioning: `metadata.json` beside chunks of arrays.

Chunks are CSV, NumPy or Parquet files; Parquet needs `pyarrow`. Source: DGL user guide, 7.1, "Chunked Graph Format".
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.data.array_files import read_npy
from jhgnn.data.number_table import read_table
from jhgnn.data.progress import reading
from jhgnn.distributed.dgl_names import FEATURES, LABELS, MASKS, WEIGHTS, first_of, labelled_type, whole_labels
from jhgnn.distributed.manifest import read_json, relation_from
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

METADATA_FILE = "metadata.json"
HOW_TO_GET_PYARROW = "pip install 'jhgnn[partition]' (or pyarrow)"


def is_chunked(path: Path) -> bool:
    """Whether a folder holds a chunked graph, by its file names."""
    return (path / METADATA_FILE).is_file()


def read_dgl_chunks(
    path: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True
) -> HeteroGraph:
    """Reads a folder in DGL's chunked graph format.

    Of the arrays of a node type, `feat` (`features`, `feature`, `x`) are its features, `label` (`labels`, `y`) and
    `train_mask`, `val_mask`, `test_mask` the target's labels and splits; `weight` (`weights`, `w`) of an edge type are
    its weights. Others are left alone.

    Args:
        path: folder with `metadata.json`; paths in it are relative to the folder, or absolute.
        target: the labelled type; needed where several have labels.
        seed: unused, splits are read.
        progress: report long reads on stderr.

    Raises:
        InputError: a file or a key of `metadata.json` is missing; a chunk is damaged, pickled, or has other counts than
            `metadata.json` says; a format is unknown, or needs a package that is not installed.
    """
    if path is None:
        raise InputError("dgl_chunks: no path is given; need the folder of a chunked graph")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"dgl_chunks: {folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    where = folder / METADATA_FILE
    metadata = read_json(where, f"{folder} holds no chunked graph")
    chunks = _Chunks(folder, progress)
    try:
        return _graph(metadata, chunks, target, where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: entry missing or wrong: {error}") from error


def _graph(metadata: Mapping[str, Any], chunks: "_Chunks", target: str | None, where: Path) -> HeteroGraph:
    types, names = list(metadata["node_type"]), list(metadata["edge_type"])
    num_nodes = dict(zip(types, _counts(metadata, "nodes", len(types)), strict=True))
    num_edges = dict(zip(names, _counts(metadata, "edges", len(names)), strict=True))
    node_data, edge_data = metadata.get("node_data") or {}, metadata.get("edge_data") or {}
    for node_type in node_data:
        if node_type not in num_nodes:
            raise InputError(f"{where}: node_data of {node_type!r}; node types are {', '.join(types)}")
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for name in names:
        pairs = chunks.read(metadata["edges"][name], f"edges of {name}")
        if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) != num_edges[name]:
            raise InputError(f"{where}: edges of {name} have shape {pairs.shape}; need ({num_edges[name]}, 2)")
        relation = relation_from(name)
        edges[relation] = tuple(_whole(pairs[:, end], f"{where}: edges of {name}") for end in (0, 1))
        key = first_of(WEIGHTS, edge_data.get(name, {}))
        if key is not None:
            weights = chunks.read(edge_data[name][key], f"{name}/{key}")
            if weights.size == num_edges[name]:
                edges[relation] += (weights.reshape(-1),)
    arrays = {node_type: list(node_data.get(node_type, {})) for node_type in types}
    chosen = labelled_type(arrays, target, str(where))
    features = {}
    for node_type in types:
        key = first_of(FEATURES, arrays[node_type])
        if key is not None:
            rows = chunks.rows(node_data[node_type][key], f"{node_type}/{key}", num_nodes[node_type])
            features[node_type] = rows.reshape(len(rows), -1)
    labels, splits = None, {}
    if chosen is not None:
        key = first_of(LABELS, arrays[chosen])
        if key is not None:
            rows = chunks.rows(node_data[chosen][key], f"{chosen}/{key}", num_nodes[chosen])
            labels = whole_labels(rows, f"{where}: {chosen}/{key}")
        for mask, split in MASKS.items():
            if mask in arrays[chosen]:
                rows = chunks.rows(node_data[chosen][mask], f"{chosen}/{mask}", num_nodes[chosen])
                splits[split] = rows.reshape(len(rows), -1)[:, 0] != 0
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes,
        edges=edges,
        features=features,
        target=chosen,
        labels=labels,
        splits={split: marks for split, marks in splits.items() if marks.any()},
        name=str(metadata["graph_name"]),
        where=str(where),
    )


def _counts(metadata: Mapping[str, Any], what: str, length: int) -> list[int]:
    """Nodes or edges by type: `num_nodes_per_type`, or the sums of `num_nodes_per_chunk`."""
    if f"num_{what}_per_type" in metadata:
        counts = [int(count) for count in metadata[f"num_{what}_per_type"]]
    else:
        counts = [sum(int(count) for count in chunks) for chunks in metadata[f"num_{what}_per_chunk"]]
    if len(counts) != length:
        raise ValueError(f"num_{what}_per_chunk has {len(counts)} entries for {length} types")
    return counts


def _whole(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind != "f" or not (values == np.rint(values)).all():
        raise InputError(f"{where} are {values.dtype} and not whole numbers; need node ids")
    return values.astype(np.int64)


class _Chunks:
    def __init__(self, folder: Path, progress: bool) -> None:
        self._folder, self._progress = folder, progress
        self._readers: dict[str, Callable[[Path, Mapping[str, Any]], np.ndarray]] = {
            "csv": self._csv,
            "numpy": self._numpy,
            "parquet": self._parquet,
        }

    def rows(self, spec: Mapping[str, Any], what: str, count: int) -> np.ndarray:
        """All chunks of a node type's array, which must have one row a node."""
        rows = self.read(spec, what)
        if len(rows) != count:
            raise InputError(f"{self._folder / METADATA_FILE}: {what} has {len(rows)} rows; the type has {count} nodes")
        return rows

    def read(self, spec: Mapping[str, Any], what: str) -> np.ndarray:
        """All chunks of one array, behind each other."""
        name, paths = str(spec["format"]["name"]), [self._folder / path for path in spec["data"]]
        if name not in self._readers:
            raise InputError(
                f"{self._folder / METADATA_FILE}: {what} is of the format {name!r}; need {', '.join(self._readers)}"
            )
        if not paths:
            raise InputError(f"{self._folder / METADATA_FILE}: {what} has no chunks")
        for path in paths:
            if not path.is_file():
                raise InputError(f"{path} is missing, but {METADATA_FILE} names it for {what}")
        chunks = []
        with reading(what, sum(path.stat().st_size for path in paths), self._progress) as advance:
            for path in paths:
                chunks.append(self._readers[name](path, spec["format"]))
                advance(path.stat().st_size)
        shapes = {chunk.shape[1:] for chunk in chunks}
        if len(shapes) > 1:
            raise InputError(f"{self._folder / METADATA_FILE}: chunks of {what} have rows of shapes {sorted(shapes)}")
        return np.concatenate(chunks)

    def _csv(self, path: Path, layout: Mapping[str, Any]) -> np.ndarray:
        separator = str(layout.get("delimiter", ",")).encode()
        if len(separator) != 1:
            raise InputError(f"{path}: delimiter {separator.decode()!r} of {METADATA_FILE}; need one character")
        with open(path, "rb") as file:
            table = read_table(file, str(path), separator=separator)
        whole = table.astype(np.int64) if np.isfinite(table).all() and (np.abs(table) < 2**53).all() else None
        return whole if whole is not None and (whole == table).all() else table

    def _numpy(self, path: Path, _: Mapping[str, Any]) -> np.ndarray:
        with open(path, "rb") as file:
            return read_npy(file, str(path))

    def _parquet(self, path: Path, _: Mapping[str, Any]) -> np.ndarray:
        parquet, arrow = _pyarrow(path)
        try:
            table = parquet.read_table(path, memory_map=True)
        except (arrow.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a readable Parquet file: {error}") from error
        columns: Sequence[Any] = table.columns
        if len(columns) == 1 and (arrow.types.is_list(columns[0].type) or arrow.types.is_large_list(columns[0].type)):
            # Spark writes one column of vectors.
            lists = columns[0].combine_chunks()
            lengths = set(lists.value_lengths().to_pylist())
            if len(lengths) > 1:
                raise InputError(f"{path} has vectors of the lengths {sorted(lengths, key=str)[:4]}; need one length")
            rows = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
        else:
            rows = np.stack([column.to_numpy() for column in columns], axis=1) if columns else np.zeros((0, 0))
        shape = (table.schema.metadata or {}).get(b"shape")  # DGL's own, of arrays that are no tables
        if shape is None:
            return rows
        extents = tuple(int(digits) for digits in re.findall(rb"\d+", shape))
        if int(np.prod(extents)) != rows.size:
            raise InputError(f"{path} has {rows.size} entries; its metadata says {extents}")
        return rows.reshape(extents)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
    except ImportError:
        raise InputError(
            f"{path} is a Parquet file, which needs pyarrow, which is not installed: {HOW_TO_GET_PYARROW}"
        ) from None
