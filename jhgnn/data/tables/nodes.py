"""The nodes of a type from its table: keys, times and features, and labels and splits that stand beside them."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from jhgnn.data.tables.column import Chunk
from jhgnn.data.tables.encoders import Part
from jhgnn.data.tables.feature_reader import FeatureReader
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.keys import KeyCollector, key_values
from jhgnn.data.tables.moments import TimeUnit
from jhgnn.data.tables.schema import NodeTable
from jhgnn.data.tables.table import Table
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.key_index import KeyIndex, RepeatedKeyError
from jhgnn.graph.texts import Texts


class RowReader(Protocol):
    """Reads some columns of rows that belong to nodes."""

    columns: Sequence[str]

    def add(self, chunk: Chunk, nodes: np.ndarray) -> None:
        """Takes rows, which belong to these nodes `[num_rows]`; raises InputError for a wrong one."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class ReadNodes:
    """Nodes of a type in the order of their rows: keys (int64, Texts, or None: their numbers), times, features."""

    count: int
    keys: np.ndarray | Texts | None
    times: np.ndarray | None
    features: Part | None
    columns: tuple[FeatureColumn, ...]


def read_nodes(
    table: Table,
    spec: NodeTable,
    unit: TimeUnit,
    fitted: Sequence[FeatureColumn] | None,
    beside: Sequence[RowReader],
) -> ReadNodes:
    """Reads a table once, a chunk of rows at a time.

    Args:
        table: with a row a node.
        spec: what the schema says of its columns.
        unit: of all times.
        fitted: how the features of another graph became numbers; None: to be found here.
        beside: what else reads columns of this table.

    Raises:
        InputError: what a column holds is not what the schema says; the row is named.
    """
    features = FeatureReader(spec.features, table, fitted)
    wanted = list(features.columns)
    wanted += [name for name in (spec.key, spec.time) if name]
    wanted += [name for reader in beside for name in reader.columns]
    keys, times, count = KeyCollector(), Growing(np.int64), 0
    for chunk in table.chunks(list(dict.fromkeys(wanted)) or table.names()[:1]):
        if spec.key is not None:
            keys.add(key_values(chunk.columns[spec.key], spec.key, chunk.place))
        if spec.time is not None:
            times.add(unit.read(chunk.columns[spec.time], spec.time, chunk.place))
        features.add(chunk)
        nodes = np.arange(count, count + chunk.num_rows)
        for reader in beside:
            reader.add(chunk, nodes)
        count += chunk.num_rows
    if count >= 2**31:
        raise InputError(f"{table.shown} has {count:,} rows; a node type has less than 2**31 nodes")
    matrix, columns = features.finish()
    return ReadNodes(
        count,
        keys.finish() if spec.key is not None else None,
        times.finish() if spec.time is not None else None,
        matrix,
        columns,
    )


def index_of(nodes: ReadNodes, spec: NodeTable, table: Table | None) -> KeyIndex:
    """The index of the nodes' keys, or of their numbers.

    Raises:
        InputError: a key stands twice; both rows are named.
    """
    if nodes.keys is None:
        return KeyIndex(np.arange(nodes.count))
    try:
        return KeyIndex(nodes.keys)
    except RepeatedKeyError as error:
        assert table is not None
        assert spec.key is not None
        first, second = _places(table, spec.key, error.first, error.second)
        raise InputError(
            f"{second}: {spec.key} is {str(nodes.keys[error.first])!r}, the key of {first} as well; a key stands once"
        ) from None


def read_beside(table: Table, key: str, reader: RowReader, index: KeyIndex, shown: str) -> None:
    """Lets a reader take the rows of a table of its own, which names nodes in the column `key`.

    Raises:
        InputError: a key is missing or that of no node; the row is named.
    """
    for chunk in table.chunks(list(dict.fromkeys([key, *reader.columns]))):
        keys = key_values(chunk.columns[key], key, chunk.place)
        nodes = index.find(keys)
        if (nodes < 0).any():
            row = int(np.argmax(nodes < 0))
            raise InputError(f"{chunk.place(row)}: {key} is {str(keys[row])!r}, which is no key of {shown}")
        reader.add(chunk, nodes)


def _places(table: Table, column: str, *rows: int) -> list[str]:
    """How messages call rows, which are read again for it."""
    places, start = {}, 0
    for chunk in table.chunks([column]):
        for row in rows:
            if start <= row < start + chunk.num_rows:
                places[row] = chunk.place(row - start)
        start += chunk.num_rows
    return [places[row] for row in rows]
