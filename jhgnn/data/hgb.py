"""HGB's layout: `node.dat`, `link.dat`, `label.dat`, `label.dat.test`, `info.dat` (Lv et al., KDD 2021).

Node ids count over all types; a node's id within its type is its rank among them. Test labels are in
`label.dat.test`, and a fifth of `label.dat` validates.
"""

from pathlib import Path

import numpy as np

from jhgnn.data.hgb_attributes import AttributeRows
from jhgnn.data.hgb_info import HgbInfo, parse_info
from jhgnn.data.labelled import check_target, hold_out
from jhgnn.data.names import unused
from jhgnn.data.number_table import BLOCK_BYTES, read_table, whole_numbers
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.schema import Relation

LINK_PREDICTION = "link.dat.test"
"""Marks HGB's link prediction sets, which have no labels."""
MAX_CLASSES = 1 << 16
"""Above this a class number is taken for a mistake where info.dat does not say how many there are."""


def read_hgb(
    path: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True, reverse: bool = True
) -> HeteroGraph:
    """Reads a data set in HGB's layout, from its folder or zip.

    Args:
        path: folder or zip; the files may lie in one sub-folder of it.
        target: labelled type; needed only where several types have labels.
        seed: chooses the fifth of the train pool that validates.
        progress: report on stderr.
        reverse: add reverses of relations that the file gives in one direction only; one whose reverse is there
            (ACM's `ref` is that of `cite`) gets none.

    Returns:
        The graph; weights of a relation are kept unless all are 1, features are CSR below 20 % density.

    Raises:
        InputError: a file is missing, damaged or wrong; file and row are named.
    """
    with open_source(path, "node.dat", "link.dat", what="hgb") as source:
        info = parse_info(source.read("info.dat"), source.where("info.dat")) if "info.dat" in source else HgbInfo()
        nodes = _read_nodes(source, progress)
        type_names = {number: info.type_name(number) for number in nodes.numbers}
        edges = _read_links(source, nodes, info, type_names, progress)
        labels: np.ndarray | None = None
        splits: dict[str, np.ndarray] = {}
        num_classes, labelled = None, None
        if "label.dat" in source or LINK_PREDICTION not in source:
            number, labels, num_classes, splits = _read_labels(source, nodes, info, type_names, target, seed)
            labelled = type_names[number]
        elif target is not None:
            raise InputError(f"{source.where('label.dat')} is missing: target {target!r} has no labels")
        graph = HeteroGraph.from_arrays(
            name=Path(source.shown).stem,
            where=source.shown,
            num_nodes={type_names[number]: int(count) for number, count in nodes.counts.items()},
            edges=edges,
            features={type_names[number]: matrix for number, matrix in nodes.features.items()},
            target=labelled,
            labels=labels,
            num_classes=num_classes,
            splits=splits,
        )
    return graph.with_reverse_relations() if reverse else graph


class _Nodes:
    """`type_of` and `local` `[num_nodes]` by global id, `counts` and `features` by type number."""

    def __init__(self, type_of: np.ndarray, features: dict[int, Features]) -> None:
        self.type_of, self.features = type_of, features
        self.numbers = [int(number) for number in np.unique(type_of)]
        self.counts = {number: int((type_of == number).sum()) for number in self.numbers}
        self.local = np.zeros(len(type_of), np.int64)
        for number, count in self.counts.items():
            self.local[type_of == number] = np.arange(count)


def _read_nodes(source: Source, progress: bool) -> _Nodes:
    where = source.where("node.dat")
    ids: list[int] = []
    types: list[int] = []
    rows: list[int] = []
    attributes: dict[int, AttributeRows] = {}
    bare: dict[int, int] = {}  # type -> first row without attributes
    with source.open("node.dat", progress) as (stream, advance):
        first_row, carried = 1, b""
        while True:
            read = stream.read(BLOCK_BYTES)
            advance(len(read))
            lines = (carried + read).split(b"\n")
            carried = lines.pop() if read else b""
            pending: dict[int, tuple[list[bytes], list[int]]] = {}
            for row, line in enumerate(lines, start=first_row):
                fields = line.rstrip(b"\r").split(b"\t")
                if len(fields) not in (3, 4):
                    if not line.strip():
                        continue
                    raise InputError(f"{where} row {row} has {len(fields)} fields; need id, name, type[, attributes]")
                try:
                    node, kind = int(fields[0]), int(fields[2])
                except ValueError:
                    shown = (fields[0] + b" ... " + fields[2]).decode(errors="replace")
                    raise InputError(f"{where} row {row}: id and type {shown!r} must be whole numbers") from None
                ids.append(node)
                types.append(kind)
                rows.append(row)
                if len(fields) == 4 and fields[3]:
                    texts, numbers = pending.setdefault(kind, ([], []))
                    texts.append(fields[3])
                    numbers.append(row)
                else:
                    bare.setdefault(kind, row)
            for kind, (texts, numbers) in pending.items():
                attributes.setdefault(kind, AttributeRows(where)).add(texts, numbers)
            first_row += len(lines)
            if not read:
                break
    for kind in attributes.keys() & bare.keys():
        raise InputError(f"{where} row {bare[kind]} has no attributes, but other nodes of type {kind} have some")
    global_ids, file_rows = np.array(ids, np.int64), np.array(rows, np.int64)
    order = _order_of_ids(global_ids, file_rows, where)
    type_of = np.array(types, np.int64)[order]
    features = {kind: matrix.matrix(file_rows[order][type_of == kind]) for kind, matrix in sorted(attributes.items())}
    return _Nodes(type_of, features)


def _order_of_ids(ids: np.ndarray, rows: np.ndarray, where: str) -> np.ndarray:
    if not len(ids):
        raise InputError(f"{where} has no nodes")
    order = np.argsort(ids, kind="stable")
    wrong = np.flatnonzero(ids[order] != np.arange(len(ids)))
    if len(wrong):
        first = int(wrong[0])
        node, row = int(ids[order[first]]), int(rows[order[first]])
        if node < first:
            raise InputError(f"{where} row {row} gives node {node} twice")
        raise InputError(f"{where}: node {first} is missing (row {row} has id {node}); ids must run from 0 on")
    return order


def _read_links(
    source: Source, nodes: _Nodes, info: HgbInfo, type_names: dict[int, str], progress: bool
) -> dict[Relation, tuple[np.ndarray, ...]]:
    where, num_nodes = source.where("link.dat"), len(nodes.type_of)
    with source.open("link.dat", progress) as (stream, advance):
        table = read_table(stream, where, columns=None, advance=advance)
    if not len(table):
        raise InputError(f"{where} has no links")
    if table.shape[1] not in (3, 4):
        raise InputError(f"{where} row 1 has {table.shape[1]} fields; need source, target, relation[, weight]")
    ends = []
    for column, what in ((0, "source"), (1, "target")):
        ids = whole_numbers(table[:, column], where, what)
        bad = (ids < 0) | (ids >= num_nodes)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{where} row {row + 1}: {what} {ids[row]} is out of range; need a node id, 0 to {num_nodes - 1}"
            )
        ends.append(ids)
    senders, receivers = ends
    kinds = whole_numbers(table[:, 2], where, "relation")
    edges: dict[Relation, tuple[np.ndarray, ...]] = {}
    for kind in np.unique(kinds):
        chosen = np.flatnonzero(kinds == kind)
        pairs = np.stack([nodes.type_of[senders[chosen]], nodes.type_of[receivers[chosen]]], axis=1)
        if int(kind) in info.links:
            expected = np.array(info.links[int(kind)][:2])
            wrong = (pairs != expected).any(axis=1)
            if wrong.any():
                row = int(chosen[np.argmax(wrong)])
                between = " to ".join(type_names.get(int(number), str(number)) for number in expected)
                found = " to ".join(type_names[int(number)] for number in pairs[np.argmax(wrong)])
                raise InputError(
                    f"{where} row {row + 1}: link {senders[row]} {receivers[row]} joins {found};"
                    f" info.dat says that relation {kind} joins {between}"
                )
        for start, end in np.unique(pairs, axis=0):
            same = chosen[(pairs == (start, end)).all(axis=1)]
            relation = _relation(int(kind), type_names[int(start)], type_names[int(end)], info, edges)
            columns = [nodes.local[senders[same]], nodes.local[receivers[same]]]
            if table.shape[1] == 4 and (table[same, 3] != 1).any():
                columns.append(table[same, 3])
            edges[relation] = tuple(columns)
    return edges


def _relation(kind: int, source: str, target: str, info: HgbInfo, taken: dict[Relation, tuple]) -> Relation:
    used = {relation.name for relation in taken if (relation.source, relation.target) == (source, target)}
    return Relation(source, unused(info.relation_name(kind, source, target), used), target)


def _read_labels(
    source: Source, nodes: _Nodes, info: HgbInfo, type_names: dict[int, str], target: str | None, seed: int
) -> tuple[int, np.ndarray, int, dict[str, np.ndarray]]:
    given: dict[str, dict[int, list[int]]] = {}
    several = False
    for name in ("label.dat", "label.dat.test"):
        given[name] = {}
        other = given["label.dat"] if name != "label.dat" else {}
        for row, line in source.lines(name):
            node, classes = _parse_label(line, f"{source.where(name)} row {row}", nodes, info)
            if node in given[name] or node in other:
                raise InputError(f"{source.where(name)} row {row} labels node {node} for the second time")
            given[name][node] = classes
            several |= len(classes) > 1
    found = sorted({int(nodes.type_of[node]) for labels in given.values() for node in labels})
    where = source.where("label.dat")
    if not found:
        raise InputError(f"{where} has no labels")
    number = found[0]
    if len(found) > 1:
        by_name = {type_names[kind]: kind for kind in found}
        if target not in by_name:
            raise InputError(f"{where} labels several types: {', '.join(by_name)}; choose one as target")
        number = by_name[target]
    check_target(where, type_names[number], target)
    members = {
        name: np.array([node for node in labels if nodes.type_of[node] == number], np.int64)
        for name, labels in given.items()
    }
    for name, ids in members.items():
        if not len(ids):
            raise InputError(f"{source.where(name)} has no labels of {type_names[number]!r}; need one at least")
    highest = max(max(given[name][int(node)]) for name, ids in members.items() for node in ids)
    num_classes = max(highest + 1, info.num_classes.get(number, 0))
    if num_classes > MAX_CLASSES:
        raise InputError(
            f"{source.where('info.dat')} names class {num_classes - 1} of {type_names[number]!r}; need 0 to"
            f" {MAX_CLASSES - 1}"
        )
    labels = (
        np.zeros((nodes.counts[number], num_classes), np.uint8)
        if several
        else np.full(nodes.counts[number], -1, np.int64)
    )
    for name, ids in members.items():
        for node in ids:
            if several:
                labels[nodes.local[node], given[name][int(node)]] = 1
            else:
                labels[nodes.local[node]] = given[name][int(node)][0]
    splits = hold_out(nodes.local[members["label.dat"]], seed, where)
    splits["test"] = nodes.local[members["label.dat.test"]]
    return number, labels, num_classes, splits


def _parse_label(line: str, where: str, nodes: _Nodes, info: HgbInfo) -> tuple[int, list[int]]:
    fields = line.split("\t")
    if len(fields) != 4:
        raise InputError(f"{where} has {len(fields)} fields; need id, name, type, label")
    try:
        node, kind = int(fields[0]), int(fields[2])
        classes = [int(label) for label in fields[3].split(",")]
    except ValueError:
        raise InputError(f"{where}: {line[:80]!r} must be id, name, type and class numbers") from None
    if not 0 <= node < len(nodes.type_of):
        raise InputError(f"{where}: node {node} is out of range; need 0 to {len(nodes.type_of) - 1}")
    if nodes.type_of[node] != kind:
        raise InputError(f"{where}: node {node} is of type {nodes.type_of[node]} in node.dat, not {kind}")
    limit = info.num_classes.get(kind) or MAX_CLASSES
    for label in classes:
        if not 0 <= label < limit:
            raise InputError(f"{where}: label {label} of node {node} is out of range; need 0 to {limit - 1}")
    return node, classes
