"""The schema of tables from its TOML file, or from a mapping of the same form."""

import datetime
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jhgnn.data.tables.csv_file import Dialect
from jhgnn.data.tables.schema import (
    FEATURE_KINDS,
    EdgeTable,
    Feature,
    Files,
    Labels,
    Links,
    NodeTable,
    Split,
    TableSchema,
)
from jhgnn.data.tables.section import Section
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import SPLITS
from jhgnn.graph.schema import Relation, Schema

SCHEMA_FILE = "tables.toml"
MAX_WIDTH = 1 << 20
"""Columns of a feature: far beyond what a model can read, and few enough for a row of them to be in memory."""
_SHARES_ADD_UP = 1 + 1e-9


def find_schema(path: str | Path | None) -> Path:
    """The schema's file: the path itself, or `tables.toml` in the folder that it is.

    Raises:
        InputError: there is none.
    """
    if path is None or not str(path):
        raise InputError(f"tables: no path is given; need a schema in TOML, or a folder with a {SCHEMA_FILE}")
    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(f"tables: {path} does not exist; need a schema in TOML, or a folder with a {SCHEMA_FILE}")
    if path.is_dir():
        if not (path / SCHEMA_FILE).is_file():
            raise InputError(f"tables: {path} holds no {SCHEMA_FILE}; write one, or give the path of the schema")
        return path / SCHEMA_FILE
    if path.suffix.lower() != ".toml":
        raise InputError(f"tables: {path} is neither a folder nor a schema in TOML")
    return path


def read_schema(path: Path) -> TableSchema:
    """Reads a schema file strictly.

    Raises:
        InputError: it cannot be read, is not TOML, or says something that is unknown or impossible; the table and the
            key are named.
    """
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig"))  # some editors write a mark before the text
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    return parse_schema(values, str(path), path.resolve().parent.name)


def parse_schema(values: Mapping[str, Any], where: str, name: str) -> TableSchema:
    """A schema from nested mappings, as TOML would give them; `name` is the graph's where they give none.

    Raises:
        InputError: as `read_schema`.
    """
    top = Section(where, (), values)
    name = top.text("name") or name
    nodes = {node_type: _nodes(node_type, section) for node_type, section in top.tables("nodes")}
    if not nodes:
        raise top.error("no node types; need a table [nodes.TYPE] for each")
    edges = {}
    for written, section in top.tables("edges"):
        edge_table = _edges(written, section, nodes)
        edges[edge_table.relation] = edge_table
    try:
        Schema(tuple(nodes), tuple(edges))
    except InputError as error:
        raise top.error(str(error)) from None
    labels = _labels(top.table("labels"), nodes)
    split = _split(top.table("splits"), "splits")
    if split is not None and labels is None:
        raise top.error("[splits] without [labels]: nodes without classes cannot be trained on")
    links = _links(top.table("links"), edges)
    top.done()
    return TableSchema(name, where, nodes, edges, labels, split, links)


def _files(section: Section) -> Files | None:
    names = section.texts("files")
    written = [key for key in ("separator", "quotes", "header", "missing") if key in section]
    if names is None:
        if written and written != ["missing"]:
            raise section.error(f"{written[0]} says how a CSV file is written, but there are no files")
        names = ()
    tabs = any(name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) for name in names)
    separator = section.text("separator") or ("\t" if tabs else ",")
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise section.error(f"separator = {separator!r} must be one character of ASCII, and no quote or line end")
    missing = section.take("missing", [""])
    listed = [missing] if isinstance(missing, str) else missing
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise section.error(f"missing = {missing!r} must be a string or a list of strings")
    dialect = Dialect(separator, section.flag("quotes", True), section.texts("header") or (), tuple(listed))
    return Files(names, dialect) if names or written else None


def _nodes(node_type: str, section: Section) -> NodeTable:
    files = _files(section)
    key, time = section.text("key"), section.text("time")
    features = _features(section)
    section.done()
    return NodeTable(node_type, files, key, time, features)


def _features(section: Section) -> tuple[Feature, ...]:
    return tuple(_feature(name, value, section.where) for name, value in section.values("features").items())


def _feature(name: str, value: Any, where: str) -> Feature:
    section = Section(where, (), {"kind": value} if isinstance(value, str) else value)
    section.where = f"{where}: feature {name!r}"
    kind = section.take("kind")
    if kind not in FEATURE_KINDS:
        raise section.error(f"kind = {kind!r} is not one of {', '.join(map(repr, FEATURE_KINDS))}")
    columns = section.texts("column" if kind != "vector" or "column" in section else "columns") or (name,)
    if len(columns) > 1 and kind != "vector":
        raise section.error(f"column = {list(columns)!r}: only a vector is made of several columns")
    options: dict[str, Any] = {"missing": section.choice("missing", ("fill", "flag", "error"), "fill")}
    if kind == "number":
        options["scale"] = section.choice("scale", ("standard", "none"), "standard")
    if kind in ("category", "categories"):
        options["categories"] = section.distinct_texts("categories")
        options["max_categories"] = section.whole("max_categories", 0, 0, MAX_WIDTH)
        options["other"] = section.flag("other", options["max_categories"] > 0)
        if options["categories"] is not None and options["max_categories"]:
            raise section.error("categories and max_categories: give one of them")
    if kind == "categories":
        options["separator"] = section.text("separator") or "|"
    if kind == "text":
        options["width"] = section.whole("width", 256, 1, MAX_WIDTH)
    if kind == "vector":
        options["width"] = section.whole("width", 0, 0, MAX_WIDTH)
    section.done()
    return Feature(name, kind, columns, options)


def _edges(written: str, section: Section, nodes: Mapping[str, NodeTable]) -> EdgeTable:
    parts = written.split(":")
    if len(parts) != 3 or not all(parts):
        raise section.error(f"the name {written!r} must be 'SOURCE:RELATION:TARGET', such as 'author:writes:paper'")
    relation = Relation(*parts)
    for end in (relation.source, relation.target):
        if end not in nodes:
            raise section.error(f"{end!r} is no node type; known: {', '.join(nodes)}")
    edges = EdgeTable(
        relation,
        _files(section),
        section.needed_text("source", f"the column with keys of {relation.source!r}"),
        section.needed_text("target", f"the column with keys of {relation.target!r}"),
        section.text("weight"),
        section.text("time"),
        "drop" if section.choice("dangling", ("error", "drop"), "error") == "drop" else "error",
        _features(section),
    )
    section.done()
    return edges


def _labels(section: Section | None, nodes: Mapping[str, NodeTable]) -> Labels | None:
    if section is None:
        return None
    node_type = section.needed_text("type", "the node type that is labelled")
    if node_type not in nodes:
        raise section.error(f"type = {node_type!r} is no node type; known: {', '.join(nodes)}")
    column, columns = section.text("column"), section.texts("columns")
    if (column is None) == (columns is None):
        raise section.error("need either column, which holds the class, or columns, which hold 0 or 1 for a class each")
    classes = section.distinct_texts("classes") or ()
    if columns is not None and classes:
        raise section.error("classes are the columns' names where columns are given; leave them out")
    multi = section.flag("multi", columns is not None)
    if columns is not None and not multi:
        raise section.error("multi = false, but with columns a node may have several classes; leave it out")
    separator = section.text("separator") or "|"
    key, files = _key_and_files(section, "labels")
    section.done()
    return Labels(
        node_type,
        (column,) if column is not None else columns or (),
        columns is not None,
        multi,
        separator,
        classes,
        key,
        files,
    )


def _key_and_files(section: Section, what: str) -> tuple[str | None, Files | None]:
    """The files of labels or splits that do not stand in the nodes' own table."""
    files, key = _files(section), section.text("key")
    if files is not None and key is None:
        raise section.error(f"files without key; need the column that says which node each of the {what} is of")
    return key, files


def _split(section: Section | None, what: str) -> Split | None:
    if section is None:
        return None
    ways = [key for key in ("column", "shares", "time") if key in section]
    if len(ways) != 1:
        given = " and ".join(ways) or "nothing"
        raise section.error(f"need one of column, shares or time, to say which {what} there are; found {given}")
    if ways == ["column"]:
        column = section.text("column")
        key, files = _key_and_files(section, what)
        split = Split(column=column, key=key, files=files)
    elif ways == ["shares"]:
        split = Split(shares=_shares(section), by_time=section.flag("by_time", False))
    else:
        split = Split(borders=_borders(section))
    section.done()
    return split


def _shares(section: Section) -> dict[str, float]:
    shares = section.values("shares")
    for name, share in shares.items():
        if name not in SPLITS:
            raise section.error(f"shares of {name!r}; need {', '.join(SPLITS)}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise section.error(f"shares: {name} = {share!r} must be above 0 and below 1")
    if "train" not in shares or len(shares) < 2:
        raise section.error("shares must be given for train, and for val or test or both")
    total = math.fsum(shares.values())
    if total > _SHARES_ADD_UP:
        raise section.error(f"shares add up to {total:g}; need 1 at most")
    return {name: float(shares[name]) for name in SPLITS if name in shares}


def _borders(section: Section) -> dict[str, Any]:
    borders = section.values("time")
    for name, moment in borders.items():
        if name not in ("val", "test"):
            raise section.error(f"time of {name!r}; need the first moments of val and of test")
        if isinstance(moment, bool) or not isinstance(moment, int | str | datetime.date):
            raise section.error(f"time: {name} = {moment!r} must be a whole number, or a date or date-time")
    if "test" not in borders:
        raise section.error("time needs the first moment of test, and may have that of val")
    return borders


def _links(section: Section | None, edges: Mapping[Relation, EdgeTable]) -> Links | None:
    if section is None:
        return None
    known = {str(relation): relation for relation in edges}
    names = section.distinct_texts("relations")
    if names is None:
        raise section.error("relations is missing; need those whose edges are to be predicted")
    for name in names:
        if name not in known:
            raise section.error(f"relations: {name!r} is unknown; known: {', '.join(known)}")
    split = _split(section, "links")
    assert split is not None
    if split.shares is not None and not split.by_time:
        raise section.error("shares of links are drawn by task.val_share and task.test_share; leave [links] out")
    if split.files is not None or split.key is not None:
        raise section.error("files: links are split by a column of their own tables; leave files and key out")
    return Links(tuple(known[name] for name in names), split)
