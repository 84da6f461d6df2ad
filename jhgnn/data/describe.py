"""What a heterograph holds, and how large its semantic graphs would be, as tables; nothing large is built."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import rich.box
from rich.console import Console
from rich.table import Table
from scipy import sparse

from jhgnn.config.recipe import toml_value
from jhgnn.data.tables.moments import shown
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import Features, HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph_build import default_metapaths, estimate_num_edges
from jhgnn.runtime.memory_limit import default_memory_limit_bytes, readable_bytes

_TEXTS = ("relations", "columns", "the first")
"""Columns that stand to the left, as the first one does."""


@dataclasses.dataclass(frozen=True)
class Section:
    """One table: numbers stand to the right; a note below where there is one."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""


def describe(
    graph: HeteroGraph, metapaths: Sequence[str] | None = None, *, memory_limit_bytes: int | None = None
) -> Iterator[Section]:
    """Sections in the order of a report; sizes of semantic graphs are counted or estimated one at a time.

    Args:
        metapaths: as a recipe writes them; None takes those that the schema suggests.
        memory_limit_bytes: what a build may take; None takes half of the memory available now.

    Raises:
        InputError: a metapath does not read.
    """
    parsed = None if metapaths is None else [graph.schema.metapath(text) for text in metapaths]
    yield _node_types(graph)
    if graph.columns or graph.edge_columns:
        yield _feature_columns(graph)
    if graph.keys:
        yield _keys(graph)
    yield _relations(graph)
    if graph.times:
        yield _times(graph)
    yield _labels(graph)
    if graph.splits:
        yield _splits(graph)
    if graph.links is not None:
        yield _links(graph.links)
    limit_bytes = default_memory_limit_bytes() if memory_limit_bytes is None else memory_limit_bytes
    if parsed is not None:
        yield _metapaths(graph, "metapaths, as given", parsed, limit_bytes)
    elif graph.target is None:
        yield Section("metapaths", note="none: the graph has no target type; name one with --target")
    else:
        try:
            suggested = default_metapaths(graph.without_empty().schema, graph.target)
        except InputError as error:
            yield Section("metapaths", note=str(error))
        else:
            yield _metapaths(graph, "metapaths, as the schema suggests them", suggested, limit_bytes)


def _node_types(graph: HeteroGraph) -> Section:
    rows = []
    for node_type, count in graph.num_nodes.items():
        called = f"{node_type} (target)" if node_type == graph.target else node_type
        rows.append((called, f"{count:,}", *_features(graph.features.get(node_type))))
    total = sum(graph.num_nodes.values())
    note = f"{total:,} nodes of {len(rows)} types"
    return Section("node types", ("type", "nodes", "features", "width", "density", "memory"), tuple(rows), note)


def suggestions(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[Section]:
    """The section of settings that suit the format better than a recipe's defaults, where there are any."""
    rows = [
        (f"{section}.{key}", toml_value(value)) for section, values in tables.items() for key, value in values.items()
    ]
    if rows:
        note = "instead of a recipe's defaults, as the data's authors trained on it"
        yield Section("settings that suit the data", ("key", "value"), tuple(rows), note)


def _feature_columns(graph: HeteroGraph) -> Section:
    rows = [
        (f"{node_type} {column.name}", column.kind, f"{column.width:,}", ", ".join(_first(column.labels)))
        for node_type, columns in {**graph.columns, **graph.edge_columns}.items()
        for column in columns
    ]
    return Section("features from columns", ("feature", "kind", "width", "columns"), tuple(rows))


def _first(labels: Sequence[str], most: int = 4) -> list[str]:
    return [*labels[:most], *(["..."] if len(labels) > most else [])]


def _keys(graph: HeteroGraph) -> Section:
    rows = []
    for node_type, keys in graph.keys.items():
        kind = "integers" if keys.dtype.kind == "i" else "strings"
        rows.append((node_type, kind, ", ".join(_first([str(key) for key in keys[:5].tolist()]))))
    return Section("keys", ("type", "kind", "the first"), tuple(rows))


def _times(graph: HeteroGraph) -> Section:
    rows = []
    for of, times in graph.times.items():
        ends = [shown(int(end), graph.time_unit) for end in (times.min(), times.max())] if len(times) else ["", ""]
        rows.append((str(of), *ends))
    note = "microseconds since 1970, shown as dates in UTC" if graph.time_unit else "whole numbers, as in the data"
    return Section("times", ("of", "first", "last"), tuple(rows), note)


def _features(matrix: Features | None) -> tuple[str, str, str, str]:
    if matrix is None:
        return "none", "", "", ""
    cells = max(1, matrix.shape[0] * matrix.shape[1])
    if isinstance(matrix, np.ndarray):
        filled, num_bytes, kind = int(np.count_nonzero(matrix)), matrix.nbytes, "dense"
    else:
        filled, kind = int(matrix.nnz), "sparse"
        num_bytes = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        if _is_one_hot(matrix):
            kind = "one-hot"
    return kind, f"{matrix.shape[1]:,}", _percent(filled / cells), readable_bytes(num_bytes)


def _is_one_hot(matrix: sparse.csr_array) -> bool:
    num_rows = matrix.shape[0]
    return (
        matrix.shape == (num_rows, num_rows)
        and np.array_equal(matrix.indices, np.arange(num_rows))
        and bool((np.diff(matrix.indptr) == 1).all() and (matrix.data == 1).all())
    )


def _relations(graph: HeteroGraph) -> Section:
    rows = []
    for relation, edges in graph.edges.items():
        num_sources = graph.num_nodes[relation.source]
        in_degrees = np.diff(edges.indptr)
        out_degrees = np.bincount(edges.senders, minlength=num_sources)
        cells = max(1, num_sources * edges.num_targets)
        rows.append(
            (
                str(relation),
                f"{edges.num_edges:,}",
                *_degrees(in_degrees),
                *_degrees(out_degrees),
                _percent(edges.num_edges / cells),
            )
        )
    columns = ("relation", "edges", "in mean", "in max", "out mean", "out max", "density")
    note = f"{graph.num_edges:,} edges of {len(rows)} relations; degrees over all nodes of the type, isolated ones too"
    return Section("relations", columns, tuple(rows), note)


def _degrees(degrees: np.ndarray) -> tuple[str, str]:
    mean = degrees.mean() if len(degrees) else 0.0
    return f"{mean:.2f}", f"{int(degrees.max(initial=0)):,}"


def _labels(graph: HeteroGraph) -> Section:
    if graph.labels is None:
        return Section("labels", note="none")
    if graph.multi_label:
        counts = graph.labels.sum(axis=0, dtype=np.int64)
        labelled = int((graph.labels.sum(axis=1) > 0).sum())
        kind = f"multi-label, {counts.sum() / max(1, labelled):.2f} classes a labelled node"
    else:
        counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
        labelled = int(counts.sum())
        kind = "single-label"
    names = graph.class_names or [str(number) for number in range(graph.num_classes)]
    rows = tuple(
        (name, f"{count:,}", _percent(count / max(1, labelled)))
        for name, count in zip(names, counts.tolist(), strict=True)
    )
    note = f"{kind}, {graph.num_classes} classes, {labelled:,} of {len(graph.labels):,} labelled"
    return Section(f"labels of {graph.target}", ("class", "nodes", "share of labelled"), rows, note)


def _splits(graph: HeteroGraph) -> Section:
    total = graph.num_nodes[graph.target] if graph.target is not None else 0
    rows = tuple((name, f"{len(ids):,}", _percent(len(ids) / max(1, total))) for name, ids in graph.splits.items())
    return Section("splits", ("split", "nodes", f"share of {graph.target}"), rows)


def _links(links: LinkTriples) -> Section:
    total = max(1, sum(len(triples) for triples in links.triples.values()))
    rows = tuple((name, f"{len(rows):,}", _percent(len(rows) / total)) for name, rows in links.triples.items())
    names = ", ".join(str(relation) for relation in links.relations[:4])
    more = f" and {len(links.relations) - 4} more" if len(links.relations) > 4 else ""
    return Section("links to predict", ("split", "links", "share"), rows, f"of {names}{more}")


def _metapaths(graph: HeteroGraph, title: str, metapaths: Sequence[Metapath], limit_bytes: int) -> Section:
    rows, all_exact = [], True
    for metapath in metapaths:
        estimate = estimate_num_edges(graph, metapath, memory_limit_bytes=limit_bytes)
        all_exact &= estimate.exact
        num_targets = graph.num_nodes[metapath.target]
        error = "exact" if estimate.exact else f"+- {_percent(estimate.standard_error / max(1, estimate.num_edges))}"
        rows.append(
            (
                metapath.name,
                str(estimate),
                error,
                f"{estimate.num_edges / max(1, num_targets):.2f}",
                _percent(estimate.density),
                readable_bytes(estimate.peak_bytes),
                "yes" if estimate.peak_bytes <= limit_bytes and estimate.num_edges < 2**31 else "no",
                ", ".join(str(relation) for relation in metapath.relations),
            )
        )
    columns = ("metapath", "edges", "error", "mean degree", "density", "memory to build", "fits", "relations")
    note = f"edges that the build would produce; memory limit {readable_bytes(limit_bytes)}"
    if not all_exact:
        note += "; 'about': estimated from sampled rows, with one standard error"
    return Section(title, columns, tuple(rows), note)


def _percent(share: float) -> str:
    return "0 %" if share == 0 else f"{100 * share:.3g} %"


def render(sections: Iterator[Section], console: Console) -> None:
    """Prints sections as they come: rich tables on a terminal, aligned plain text elsewhere."""
    for section in sections:
        if not console.is_terminal:
            console.file.write("\n".join(_plain(section)) + "\n\n")
            console.file.flush()
            continue
        if section.rows:
            table = Table(title=section.title, title_justify="left", box=rich.box.SIMPLE_HEAD)
            for number, column in enumerate(section.columns):
                is_text = number == 0 or column in _TEXTS
                table.add_column(column, justify="left" if is_text else "right", overflow="fold")
            for row in section.rows:
                table.add_row(*row)
            console.print(table)
            if section.note:
                console.print(f"  {section.note}\n", highlight=False, markup=False)
        else:
            console.print(f"{section.title}: {section.note}\n", highlight=False, markup=False)


def _plain(section: Section) -> list[str]:
    if not section.rows:
        return [f"{section.title}: {section.note}"]
    table = (section.columns, *section.rows)
    widths = [max(len(row[number]) for row in table) for number in range(len(section.columns))]
    lines = [section.title]
    for row in table:
        cells = [
            cell.ljust(width) if number == 0 or section.columns[number] in _TEXTS else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return [*lines, f"  {section.note}"] if section.note else lines
