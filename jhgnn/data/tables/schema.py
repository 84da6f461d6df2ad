"""What a schema of tables says: which tables hold nodes and edges, and what their columns mean."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Literal

from jhgnn.data.tables.csv_file import Dialect
from jhgnn.graph.schema import Relation

FEATURE_KINDS = ("number", "category", "categories", "text", "vector")
Moment = int | datetime.date | str
"""A time as a schema gives it: a whole number, a date or date-time, or text that is one."""


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a table lies: file names or patterns relative to the schema's folder, and how CSV among them is written."""

    names: tuple[str, ...]
    dialect: Dialect


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a node type or of a relation's edges: name, kind, the columns that it is made of, and options."""

    name: str
    kind: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class NodeTable:
    """A node type. Without a table, its nodes are the keys that edges hold; without `key`, the rows' numbers from 0."""

    node_type: str
    files: Files | None
    key: str | None
    time: str | None
    features: tuple[Feature, ...]


@dataclasses.dataclass(frozen=True)
class EdgeTable:
    """A relation: `source` and `target` are the columns with the keys of both ends."""

    relation: Relation
    files: Files | None
    source: str
    target: str
    weight: str | None
    time: str | None
    dangling: Literal["error", "drop"]
    features: tuple[Feature, ...] = ()


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of a node type: in one column of its own table, or of `files` with a column `key`.

    `column_a_class`: each of `columns` is a class and holds 0 or 1. `multi`: several classes a node, which text holds
    with `separator` between them.
    """

    node_type: str
    columns: tuple[str, ...]
    column_a_class: bool
    multi: bool
    separator: str
    classes: tuple[str, ...]
    key: str | None
    files: Files | None


@dataclasses.dataclass(frozen=True)
class Split:
    """Which nodes, or links, train, validate and test: by a column, by shares, or by time.

    `shares`: of `train`, `val`, `test`, drawn, or with `by_time` from the earliest to the latest. `borders`: the first
    moments of `val` and of `test`.
    """

    column: str | None = None
    key: str | None = None
    files: Files | None = None
    shares: Mapping[str, float] | None = None
    by_time: bool = False
    borders: Mapping[str, Moment] | None = None


@dataclasses.dataclass(frozen=True)
class Links:
    """Relations whose edges are to be predicted, and which of them train, validate and test."""

    relations: tuple[Relation, ...]
    split: Split


@dataclasses.dataclass(frozen=True)
class TableSchema:
    """A whole schema; `where` is what messages call it."""

    name: str
    where: str
    nodes: Mapping[str, NodeTable]
    edges: Mapping[Relation, EdgeTable]
    labels: Labels | None
    split: Split | None
    links: Links | None
