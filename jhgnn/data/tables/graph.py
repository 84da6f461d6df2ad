"""From a schema and its tables to a HeteroGraph: nodes first, then labels and edges, then splits."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jhgnn.data.labelled import check_target, hold_out
from jhgnn.data.tables.edges import Nodes, ReadEdges, read_edges
from jhgnn.data.tables.keys import DistinctKeys, key_values
from jhgnn.data.tables.labels import LabelReader
from jhgnn.data.tables.moments import TimeUnit, shown
from jhgnn.data.tables.nodes import ReadNodes, RowReader, index_of, read_beside, read_nodes
from jhgnn.data.tables.opener import Opener
from jhgnn.data.tables.schema import EdgeTable, NodeTable, Split, TableSchema
from jhgnn.data.tables.schema_file import find_schema, parse_schema, read_schema
from jhgnn.data.tables.splits import SplitReader, along_time, by_moments, drawn, members
from jhgnn.data.tables.table import Table
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.hetero_graph import SPLITS, HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation
from jhgnn.graph.texts import Texts

_log = logging.getLogger(__name__)


class Fitted(Protocol):
    """How the tables of another graph became numbers; a `HeteroGraph` is one."""

    @property
    def columns(self) -> Mapping[str, tuple[FeatureColumn, ...]]:
        """Type -> what was found for each feature."""
        ...

    @property
    def edge_columns(self) -> Mapping[str, tuple[FeatureColumn, ...]]:
        """Relation as `source:name:target` -> what was found for each feature of its edges."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in order."""
        ...


def read_tables(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    like: Fitted | None = None,
) -> HeteroGraph:
    """Reads the tables that a schema in TOML describes.

    Args:
        path: the schema, or the folder that holds it as `tables.toml`; file names in it are relative to its folder.
        target: checked against the schema's labelled type.
        seed: of drawn splits, and of validation nodes where a split column has none.
        progress: report on stderr.
        like: as in `from_tables`.

    Raises:
        InputError: the schema or a table is wrong; file, and line or key, are named.
    """
    file = find_schema(path)
    return _Reader(read_schema(file), {}, file.parent, seed, progress, like).graph(target)


def from_tables(
    schema: Mapping[str, Any] | str | Path,
    tables: Mapping[str, Any] | None = None,
    *,
    name: str = "tables",
    seed: int = 0,
    progress: bool = False,
    like: Fitted | None = None,
) -> HeteroGraph:
    """A heterograph from tables in memory, or partly in files.

    Args:
        schema: as the TOML file says it, as nested mappings; or the path of such a file. `docs/tables.md` has its keys.
        tables: node type, or relation as `source:name:target` -> a pandas frame, an Arrow table, or a mapping of names
            to arrays or lists. `labels` and `splits` are the tables of those where they have one of their own. What is
            not here is read from the files that the schema names.
        name: the graph's, where the schema has none.
        seed: of drawn splits.
        progress: report on stderr.
        like: a graph of the same schema. Categories, scales and classes are then its own instead of found here; labels
            and splits may be missing, and shares are not drawn.

    Raises:
        InputError: the schema or a table is wrong; the table and row, or the key, are named. Rows in memory and of
            Parquet count from 0.
    """
    if isinstance(schema, str | Path):
        file = find_schema(schema)
        parsed, folder = read_schema(file), file.parent
    else:
        parsed, folder = parse_schema(schema, "schema", name), Path()
    return _Reader(parsed, tables or {}, folder, seed, progress, like).graph(None)


class _Reader:
    """One reading of a schema's tables."""

    def __init__(
        self,
        schema: TableSchema,
        given: Mapping[str, Any],
        folder: Path,
        seed: int,
        progress: bool,
        like: Fitted | None,
    ) -> None:
        self._schema, self._seed, self._like, self._unit = schema, seed, like, TimeUnit()
        self._open = Opener(schema, given, folder, progress)

    def graph(self, target: str | None) -> HeteroGraph:
        schema, spec = self._schema, self._schema.labels
        if target is not None and spec is None:
            raise InputError(f"{schema.where} has no labels, so no target {target!r}; add [labels]")
        labelled = check_target(schema.where, spec.node_type, target) if spec is not None else None
        tables = {name: self._open.nodes(node_table) for name, node_table in schema.nodes.items()}
        edge_tables = {relation: self._open.edges(edge_table) for relation, edge_table in schema.edges.items()}
        labels, split = self._label_reader(), self._split_reader()
        read: dict[str, ReadNodes] = {}
        nodes: dict[str, Nodes] = {}
        for name, node_table in schema.nodes.items():
            table = tables[name]
            if table is None:
                read[name] = ReadNodes(*self._keys_of_edges(name, edge_tables), None, None, ())
            else:
                beside = self._beside(table, labels, split) if name == labelled else []
                read[name] = read_nodes(table, node_table, self._unit, self._fitted(name, node_table), beside)
            called = f"node type {name!r}" + (f" ({table.shown})" if table is not None else "")
            if table is not None and node_table.key is None:
                called += f", whose keys are the numbers of its rows, 0 to {read[name].count - 1}"
            nodes[name] = Nodes(read[name].count, index_of(read[name], node_table, table), called)
        if labelled is not None:
            self._read_beside(labels, split, nodes[labelled])
        read_edges_of = {
            relation: self._edges(edge_table, edge_tables[relation], nodes)
            for relation, edge_table in schema.edges.items()
        }
        class_names: tuple[str, ...] = ()
        label_array, splits = None, {}
        if labels is not None and spec is not None and labelled is not None:
            label_array, class_names = labels.finish(read[labelled].count, f"{schema.where} [labels]")
            splits = self._splits(split, labelled, label_array, read[labelled])
        links = self._links(read_edges_of)
        graph = HeteroGraph.from_arrays(
            name=schema.name,
            where=schema.where,
            num_nodes={name: own.count for name, own in read.items()},
            edges={relation: own.edges for relation, own in read_edges_of.items()},
            features={name: own.features for name, own in read.items()},
            target=labelled,
            labels=label_array,
            num_classes=len(class_names) if label_array is not None else None,
            splits=splits,
            links=links,
            node_times={name: own.times for name, own in read.items() if own.times is not None},
            time_unit=self._unit.unit,
            class_names=class_names,
            columns={name: own.columns for name, own in read.items() if own.columns},
        )
        # Keys were checked when their index was made.
        keys = {name: _as_array(own.keys) for name, own in read.items() if own.keys is not None}
        edge_columns = {str(relation): own.columns for relation, own in read_edges_of.items() if own.columns}
        return dataclasses.replace(graph, keys=keys, edge_columns=edge_columns)

    def _fitted(self, name: str, table: NodeTable | EdgeTable) -> tuple[FeatureColumn, ...] | None:
        """How the other graph's features of a type, or of a relation's edges, became numbers."""
        if self._like is None:
            return None
        known = self._like.columns if isinstance(table, NodeTable) else self._like.edge_columns
        columns = known.get(name, ())
        ours = [(feature.name, feature.kind) for feature in table.features]
        theirs = [(column.name, column.kind) for column in columns]
        if ours != theirs:
            listed = [", ".join(f"{name} ({kind})" for name, kind in each) or "none" for each in (ours, theirs)]
            raise InputError(
                f"{self._schema.where}: the features of {name!r} are {listed[0]}; those of the graph that it is to be"
                f" like are {listed[1]}"
            )
        return tuple(columns)

    def _label_reader(self) -> LabelReader | None:
        spec = self._schema.labels
        if spec is None:
            return None
        return LabelReader(spec, self._like.class_names if self._like is not None else spec.classes)

    def _split_reader(self) -> SplitReader | None:
        spec = self._schema.split
        return SplitReader(spec.column) if spec is not None and spec.column is not None else None

    def _beside(self, table: Table, labels: LabelReader | None, split: SplitReader | None) -> list[RowReader]:
        """The readers of labels and splits that have no table of their own."""
        schema, readers = self._schema, list[RowReader]()
        if labels is not None and schema.labels is not None and schema.labels.key is None:
            readers.append(labels)
        if split is not None and schema.split is not None and schema.split.key is None:
            readers.append(split)
        if self._like is not None:  # what is to be predicted need not be there
            names = table.names()
            readers = [reader for reader in readers if all(column in names for column in reader.columns)]
        return readers

    def _read_beside(self, labels: LabelReader | None, split: SplitReader | None, nodes: Nodes) -> None:
        schema = self._schema
        for name, reader, spec in (("labels", labels, schema.labels), ("splits", split, schema.split)):
            if reader is not None and spec is not None and spec.key is not None:
                table = self._open.beside(name, spec.files)
                if table is not None:
                    read_beside(table, spec.key, reader, nodes.index, nodes.shown)
                elif self._like is None:
                    raise InputError(f"{schema.where} [{name}] has a key, but no files; name them, or leave key out")

    def _keys_of_edges(self, node_type: str, tables: Mapping[Relation, Table]) -> tuple[int, np.ndarray | Texts]:
        """The keys of a type without a table: all that its edges hold, ascending."""
        keys = DistinctKeys()
        for relation, table in tables.items():
            spec = self._schema.edges[relation]
            ends = ((relation.source, spec.source), (relation.target, spec.target))
            columns = list(dict.fromkeys(column for end, column in ends if end == node_type))
            for chunk in table.chunks(columns) if columns else ():
                for column in columns:
                    keys.add(key_values(chunk.columns[column], column, chunk.place))
        found = keys.finish()
        return len(found), found

    def _edges(self, spec: EdgeTable, table: Table, nodes: Mapping[str, Nodes]) -> ReadEdges:
        links, relation = self._schema.links, spec.relation
        split_column = links.split.column if links is not None and relation in links.relations else None
        ends, fitted = (nodes[relation.source], nodes[relation.target]), self._fitted(str(relation), spec)
        return read_edges(table, spec, *ends, self._unit, split_column, fitted)

    def _splits(
        self, reader: SplitReader | None, node_type: str, labels: np.ndarray, nodes: ReadNodes
    ) -> dict[str, np.ndarray]:
        spec, where = self._schema.split, f"{self._schema.where} [splits]"
        if spec is None:
            return {}
        if reader is not None:
            splits = reader.finish(nodes.count, node_type, where)
            if self._like is None:
                splits = self._checked(splits, labels, nodes, where)
                if "val" not in splits and "train" in splits:
                    splits |= hold_out(splits["train"], self._seed, where)
            return splits
        pool = np.flatnonzero((labels >= 0) if labels.ndim == 1 else labels.any(axis=1)).astype(np.int32)
        if spec.shares is not None and not spec.by_time:
            return {} if self._like is not None else drawn(pool, spec.shares, self._seed, where)
        if nodes.times is None:
            raise InputError(f"{where} go by time, but [nodes.{node_type}] names no column time")
        times = nodes.times[pool]
        if spec.borders is not None:
            return self._by_moments(pool, times, spec, where)
        if self._like is not None:
            return {}
        assert spec.shares is not None
        splits, moments = along_time(pool, times, spec.shares, where)
        self._say(where, moments)
        return splits

    def _by_moments(self, pool: np.ndarray, times: np.ndarray, spec: Split, where: str) -> dict[str, np.ndarray]:
        borders = spec.borders or {}
        moments = {name: self._unit.moment(moment, f"{where} time {name}") for name, moment in borders.items()}
        if "val" in moments and not moments["val"] < moments["test"]:
            raise InputError(f"{where}: time of val is {borders['val']}, which must be before that of test")
        if not len(pool):
            raise InputError(f"{where}: there is nothing to split; no row is labelled")
        splits = members(pool, by_moments(times, moments.get("val"), moments["test"]))
        if self._like is None:
            for name in ("train", *moments):
                if name not in splits:
                    first, last = (shown(int(time), self._unit.unit) for time in (times.min(), times.max()))
                    raise InputError(f"{where}: none is left for {name!r}; times go from {first} to {last}")
        return splits

    def _say(self, where: str, moments: Mapping[str, int]) -> None:
        said = ", ".join(f"{name} from {shown(moment, self._unit.unit)}" for name, moment in moments.items())
        _log.info("%s along time: %s", where, said)

    def _checked(
        self, splits: dict[str, np.ndarray], labels: np.ndarray, nodes: ReadNodes, where: str
    ) -> dict[str, np.ndarray]:
        for name, ids in splits.items():
            bare = ids[labels[ids] < 0] if labels.ndim == 1 else ids[:0]
            if len(bare):
                key = bare[0] if nodes.keys is None else nodes.keys[int(bare[0])]
                raise InputError(f"{where}: {str(key)!r} is in {name!r} but has no class")
        return splits

    def _links(self, read: Mapping[Relation, ReadEdges]) -> LinkTriples | None:
        spec = self._schema.links
        if spec is None:
            return None
        where, parts = f"{self._schema.where} [links]", {split: list[np.ndarray]() for split in SPLITS}
        for number, relation in enumerate(spec.relations):
            for split, pairs in self._pairs(spec.split, read[relation], f"{where} {relation}").items():
                rows = (pairs & 0xFFFFFFFF, np.full(len(pairs), number), pairs >> 32)
                parts[split].append(np.stack(rows, axis=1).astype(np.int32))
        triples = {split: np.concatenate(rows) for split, rows in parts.items() if rows}
        return LinkTriples(spec.relations, triples)

    def _pairs(self, spec: Split, read: ReadEdges, where: str) -> dict[str, np.ndarray]:
        """Packed pairs of each split, of one relation."""
        if spec.column is not None:
            return {split: read.by_split[code] for code, split in enumerate(SPLITS)}
        edges = read.edges
        if edges.times is None:
            raise InputError(f"{where}: links are split by time, but its table names no column time")
        packed = edges.receivers.astype(np.int64) << 32 | edges.senders
        pool = np.arange(len(packed))
        if spec.borders is not None:
            splits = self._by_moments(pool, edges.times, spec, where)
        else:
            assert spec.shares is not None
            splits, moments = along_time(pool, edges.times, spec.shares, where)
            self._say(where, moments)
        return {split: packed[positions] for split, positions in splits.items()}


def _as_array(keys: np.ndarray | Texts) -> np.ndarray:
    return keys.strings() if isinstance(keys, Texts) else keys
