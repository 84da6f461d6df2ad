"""Opener: the table of each part of a schema, in memory where one is given, else its files."""

import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jhgnn.data.tables.schema import EdgeTable, Files, NodeTable, TableSchema
from jhgnn.data.tables.table import FileTable, MemoryTable, Table
from jhgnn.errors import InputError

BESIDE = ("labels", "splits")


class Opener:
    """Finds the tables of a schema.

    Args:
        schema: the whole.
        given: tables in memory, by node type, relation, `labels` or `splits`.
        folder: that file names are relative to.
        progress: report long reads on stderr.

    Raises:
        InputError: a table is given for something that the schema does not name.
    """

    def __init__(self, schema: TableSchema, given: Mapping[str, Any], folder: Path, progress: bool) -> None:
        self._schema, self._given, self._folder, self._progress = schema, given, folder, progress
        known = [*schema.nodes, *map(str, schema.edges), *BESIDE]
        for name in given:
            if name not in known:
                raise InputError(f"{schema.where}: a table is given for {name!r}; known: {', '.join(known)}")

    def nodes(self, spec: NodeTable) -> Table | None:
        """The table of a node type, or None where its keys are in the edges alone.

        Raises:
            InputError: a file is missing; or columns are named, but no table.
        """
        table = self._table(spec.node_type, spec.files, f"[nodes.{spec.node_type}]")
        if table is None and (spec.key or spec.time or spec.features):
            what = "key" if spec.key else "time" if spec.time else "features"
            raise InputError(
                f"{self._schema.where} [nodes.{spec.node_type}]: {what} without files; name the files of the nodes"
            )
        return table

    def edges(self, spec: EdgeTable) -> Table:
        """The table of a relation.

        Raises:
            InputError: there is none, or a file is missing.
        """
        part = f'[edges."{spec.relation}"]'
        table = self._table(str(spec.relation), spec.files, part)
        if table is None:
            raise InputError(f"{self._schema.where} {part}: files is missing; name the files of the edges")
        return table

    def beside(self, name: str, files: Files | None) -> Table | None:
        """The table of labels or splits, or None."""
        return self._table(name, files, f"[{name}]")

    def _table(self, name: str, files: Files | None, part: str) -> Table | None:
        if name in self._given:
            if files is not None and files.names:
                raise InputError(f"{self._schema.where} {part}: files are named, and a table is given; choose one")
            missing = files.dialect.missing if files is not None else ("",)
            return MemoryTable(self._given[name], name, missing)
        if files is None or not files.names:
            return None
        paths: list[Path] = []
        for pattern in files.names:
            if any(character in pattern for character in "*?["):
                found = [
                    Path(name) for name in sorted(glob.glob(os.path.join(glob.escape(str(self._folder)), pattern)))
                ]
                if not found:
                    raise InputError(f"{self._schema.where} {part}: no file in {self._folder} is like {pattern!r}")
                paths += found
            else:
                paths.append(self._folder / Path(pattern).expanduser())
        return FileTable(paths, files.dialect, self._progress)
