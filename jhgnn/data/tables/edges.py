"""The edges of a relation from its table, a chunk at a time: keys become node numbers, eight bytes an edge are kept."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import numpy as np

from jhgnn.data.tables.encoders import Part
from jhgnn.data.tables.feature_reader import FeatureReader
from jhgnn.data.tables.growing import Growing
from jhgnn.data.tables.keys import key_values
from jhgnn.data.tables.moments import TimeUnit
from jhgnn.data.tables.schema import EdgeTable
from jhgnn.data.tables.split_words import split_codes
from jhgnn.data.tables.table import Table
from jhgnn.data.tables.values import Place, numbers
from jhgnn.errors import InputError
from jhgnn.graph.edge_set import EdgeSet
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.key_index import KeyIndex
from jhgnn.graph.texts import Texts

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Nodes:
    """What edges need to know of a node type: how many there are, where a key is, and what messages call its table."""

    count: int
    index: KeyIndex
    shown: str


@dataclasses.dataclass(frozen=True, eq=False)
class ReadEdges:
    """Edges, with a split column those of each split as packed pairs `receiver << 32 | sender`, int64, and what the
    columns of edge features mean.
    """

    edges: EdgeSet
    by_split: Mapping[int, np.ndarray]
    columns: tuple[FeatureColumn, ...] = ()


def read_edges(
    table: Table,
    spec: EdgeTable,
    sources: Nodes,
    targets: Nodes,
    unit: TimeUnit,
    split_column: str | None,
    fitted: Sequence[FeatureColumn] | None = None,
) -> ReadEdges:
    """Reads a relation; `fitted` says how edge features of another graph became numbers, None: to be found here.

    Raises:
        InputError: a key is missing or unknown, a weight is no finite number, a time is none; the row is named.
    """
    packed, by_split = Growing(np.int64), {code: Growing(np.int64) for code in range(3)}
    weights = None if spec.weight is None else Growing(np.float32)
    times = None if spec.time is None else Growing(np.int64)
    features, kept = FeatureReader(spec.features, table, fitted), Growing(np.bool_)
    wanted = features.columns + [
        name for name in (spec.source, spec.target, spec.weight, spec.time, split_column) if name is not None
    ]
    dropped = 0
    for chunk in table.chunks(list(dict.fromkeys(wanted))):
        ends = []
        for column, nodes in ((spec.source, sources), (spec.target, targets)):
            keys = key_values(chunk.columns[column], column, chunk.place)
            ids = nodes.index.find(keys)
            if spec.dangling == "error" and (ids < 0).any():
                raise _unknown(keys, ids, column, nodes, chunk.place)
            ends.append(ids)
        senders, receivers = ends
        known = (senders >= 0) & (receivers >= 0) if spec.dangling == "drop" else slice(None)
        pairs = receivers.astype(np.int64)
        pairs <<= 32
        pairs |= senders.astype(np.int64)
        pairs = pairs[known]
        dropped += len(senders) - len(pairs)
        packed.add(pairs)
        if spec.features:
            features.add(chunk)
            kept.add(np.ones(len(senders), bool) if isinstance(known, slice) else known)
        if weights is not None and spec.weight is not None:
            weights.add(
                _weights(numbers(chunk.columns[spec.weight], spec.weight, chunk.place), spec, chunk.place)[known]
            )
        if times is not None and spec.time is not None:
            times.add(unit.read(chunk.columns[spec.time], spec.time, chunk.place)[known])
        if split_column is not None:
            codes = split_codes(chunk.columns[split_column], split_column, chunk.place)[known]
            for code, pairs_of_split in by_split.items():
                pairs_of_split.add(pairs[codes == code])
    if dropped:
        _log.warning("%s: %d rows dropped, whose keys no node has (dangling = 'drop')", table.shown, dropped)
    matrix, columns = features.finish()
    edges = EdgeSet.from_packed(
        packed.finish(),
        targets.count,
        None if weights is None else weights.finish(),
        None if times is None else times.finish(),
        None if matrix is None else _dense(matrix)[kept.finish()],
    )
    return ReadEdges(edges, {code: pairs_of_split.finish() for code, pairs_of_split in by_split.items()}, columns)


def _dense(matrix: Part) -> np.ndarray:
    """Edge features are kept dense, since layers read them so."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray(), np.float32)


def _unknown(keys: np.ndarray | Texts, ids: np.ndarray, column: str, nodes: Nodes, place: Place) -> InputError:
    row = int(np.argmax(ids < 0))
    return InputError(
        f"{place(row)}: {column} is {str(keys[row])!r}, which is no key of {nodes.shown}; add that node, or say"
        " dangling = 'drop'"
    )


def _weights(weights: np.ndarray, spec: EdgeTable, place: Place) -> np.ndarray:
    if np.isnan(weights).any():
        raise InputError(f"{place(int(np.argmax(np.isnan(weights))))}: no weight in column {spec.weight!r}")
    with np.errstate(over="ignore"):
        narrow = weights.astype(np.float32)
    if np.isinf(narrow).any():
        row = int(np.argmax(np.isinf(narrow)))
        raise InputError(f"{place(row)}: {spec.weight} is {weights[row]:.3g}, beyond float32")
    return narrow
