"""RDF entity classification as R-GCN's code ships it: an N-Triples file, and TSVs of the train and test entities.

Every subject and object is an `entity` without features; every predicate is a relation, with its inverse as another.
Source: Schlichtkrull et al., R-GCN, ESWC 2018; Ristoski et al., ISWC 2016 (AIFB, MUTAG, BGS, AM).
"""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jhgnn.data.labelled import check_target, hold_out
from jhgnn.data.names import local_name, unused
from jhgnn.data.ntriples import Triples, read_ntriples
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Relation

ENTITY = "entity"
LEAK_COVERAGE = 0.5
"""Share of the labelled entities that a relation must join to their labels, one to one, to count as the target.

AIFB's `member` joins 73 of 176 and is part of the published benchmark; `affiliation` and `employs`, where a file
still has them, join all.
"""
_log = logging.getLogger(__name__)


def read_rdf(
    path: str | Path | None,
    *,
    target: str | None = None,
    seed: int = 0,
    progress: bool = True,
    target_relations: Sequence[str] | None = None,
) -> HeteroGraph:
    """Reads an RDF entity classification set, from its folder or zip.

    Args:
        path: holds one `*.nt` or `*.nt.gz` (of several, the one called `*stripped*`), one TSV with `train` and one
            with `test` in its name. Their entity and label columns are found by themselves.
        target: checked against `entity`.
        seed: chooses the fifth of the train entities that validates.
        progress: report on stderr.
        target_relations: predicates (IRI or last part of it) to remove because they give the label away; None: those
            that join half of the labelled entities or more to their labels one to one, in either direction.

    Returns:
        The graph; inverses are called `rev_NAME`. Entities of the TSVs that no triple mentions are left out, as
        R-GCN's code does, with a warning in the log.

    Raises:
        InputError: a file is missing, damaged or wrong; file and row are named.
    """
    with open_source(path, "*.nt*", "*train*.tsv", "*test*.tsv", what="rdf") as source:
        check_target(source.shown, ENTITY, target)
        name = _triple_file(source)
        with source.open(name, progress) as (stream, advance):
            triples = read_ntriples(stream, source.where(name), advance)
        number_of = {term: number for number, term in enumerate(triples.terms)}
        train_name, test_name = (_only(source, f"*{split}*.tsv") for split in ("train", "test"))
        train, test = (_labelled(source, file, number_of) for file in (train_name, test_name))
        for entity in train.keys() & test.keys():
            raise InputError(f"{source.where(test_name)}: {triples.terms[entity]} is in {train_name} as well")
        given = train | test
        removed = _removed(triples, given, target_relations, source.where(name))
        classes = {label: number for number, label in enumerate(sorted(set(given.values())))}
        labels = np.full(len(triples.terms), -1, np.int64)
        for entity, label in given.items():
            labels[entity] = classes[label]
        splits = hold_out(np.array(sorted(train), np.int64), seed, source.where(train_name))
        splits["test"] = np.array(sorted(test), np.int64)
        return HeteroGraph.from_arrays(
            name=Path(source.shown).stem,
            where=source.shown,
            num_nodes={ENTITY: len(triples.terms)},
            edges=_edges(triples, removed),
            target=ENTITY,
            labels=labels,
            num_classes=len(classes),
            splits=splits,
        )


def _triple_file(source: Source) -> str:
    names = source.matching("*.nt") + source.matching("*.nt.gz")
    if not names:
        raise InputError(f"rdf: {source.shown} holds no *.nt or *.nt.gz; found: {', '.join(source.names[:8])}")
    stripped = [name for name in names if "stripped" in name.lower()]
    if len(names) == 1 or len(stripped) == 1:
        return (stripped or names)[0]
    raise InputError(f"rdf: {source.shown} holds several triple files ({', '.join(names)}); need one")


def _only(source: Source, pattern: str) -> str:
    names = source.matching(pattern)
    if len(names) > 1:
        raise InputError(f"rdf: {source.shown} holds several {pattern} ({', '.join(names)}); need one")
    return names[0]


def _labelled(source: Source, name: str, number_of: dict[str, int]) -> dict[int, str]:
    """Entity number -> label, of one TSV."""
    where = source.where(name)
    table = [(row, [field.strip().strip('"') for field in line.split("\t")]) for row, line in source.lines(name)]
    if len(table) < 2:
        raise InputError(f"{where} has no entities; need a header and a row for each")
    header = table[0][1]
    for row, fields in table[1:]:
        if len(fields) != len(header):
            raise InputError(f"{where} row {row} has {len(fields)} fields; the header has {len(header)}")
    columns = list(zip(*(fields for _, fields in table[1:]), strict=True))
    entity, label = _columns(header, columns, number_of, where)
    labels: dict[int, str] = {}
    missing = []
    for row, fields in table[1:]:
        number = _term(fields[entity], number_of)
        if not fields[label]:
            raise InputError(f"{where} row {row}: {fields[entity]!r} has no label in column {header[label]!r}")
        if number is None:
            missing.append(fields[entity])
        elif labels.get(number, fields[label]) != fields[label]:
            raise InputError(f"{where} row {row}: {fields[entity]!r} has a second label {fields[label]!r}")
        else:
            labels[number] = fields[label]
    if missing:
        _log.warning("%s: %d of %d entities are in no triple, such as %s", where, len(missing), len(table), missing[0])
    return labels


def _columns(
    header: Sequence[str], columns: Sequence[Sequence[str]], number_of: dict[str, int], where: str
) -> tuple[int, int]:
    """Which column holds the entities, and which the labels."""
    called = [i for i, title in enumerate(header) if title.lower().startswith(("label", "class"))]
    known = [sum(_term(value, number_of) is not None for value in column) for column in columns]
    # AIFB's labels are entities too, but fewer than the rows.
    order = sorted(range(len(header)), key=lambda i: (i not in called, known[i] > 0, len(set(columns[i]))))
    entity = order[-1]
    if known[entity] == 0:
        raise InputError(f"{where}: no column ({', '.join(header)}) holds entities of the triple file")
    rest = [i for i in range(len(header)) if i != entity]
    if not rest:
        raise InputError(f"{where} has the column {header[entity]!r} alone; need one with labels")
    label = [i for i in called if i != entity] or sorted(rest, key=lambda i: len(set(columns[i])))
    if len([i for i in called if i != entity]) > 1:
        raise InputError(f"{where} has several label columns: {', '.join(header[i] for i in called)}; keep one")
    return entity, label[0]


def _term(value: str, number_of: dict[str, int]) -> int | None:
    for form in (f"<{value}>", value):
        if form in number_of:
            return number_of[form]
    return None


def _removed(triples: Triples, labels: dict[int, str], named: Sequence[str] | None, where: str) -> set[int]:
    """Numbers of the predicates that give the labels away."""
    if named is not None:
        chosen = set()
        for name in named:
            found = {i for i, iri in enumerate(triples.predicates) if name in (iri, iri.strip("<>"), local_name(iri))}
            if not found:
                raise InputError(f"{where} has no predicate {name!r} to remove")
            chosen |= found
        return chosen
    removed = set()
    is_labelled = np.zeros(len(triples.terms), bool)
    is_labelled[list(labels)] = True
    for near, far in ((triples.subjects, triples.objects), (triples.objects, triples.subjects)):
        touching = np.flatnonzero(is_labelled[near])
        for predicate in np.unique(triples.relations[touching]):
            chosen = touching[triples.relations[touching] == predicate]
            pairs = list(zip(near[chosen].tolist(), far[chosen].tolist(), strict=True))
            if _gives_away(pairs, labels, triples.terms):
                removed.add(int(predicate))
    if removed:
        names = ", ".join(sorted(triples.predicates[number] for number in removed))
        _log.info("%s: removed the target relations %s", where, names)
    return removed


def _gives_away(pairs: list[tuple[int, int]], labels: dict[int, str], terms: list[str]) -> bool:
    """Whether half of the labelled entities or more are joined to their label, or to what stands for it one to one."""
    if len(pairs) < LEAK_COVERAGE * len(labels):
        return False
    to_label = {entity for entity, other in pairs if labels[entity] in (terms[other], terms[other].strip("<>"))}
    if len(to_label) >= LEAK_COVERAGE * len(labels):
        return True
    joined = Counter(entity for entity, _ in pairs)
    if len(joined) < LEAK_COVERAGE * len(labels) or max(joined.values()) > 1:
        return False
    others = {other for _, other in pairs}
    matches = {(other, labels[entity]) for entity, other in pairs}
    return len(others) > 1 and len(matches) == len(others) == len({label for _, label in matches})


def _edges(triples: Triples, removed: set[int]) -> dict[Relation, tuple[np.ndarray, np.ndarray]]:
    edges: dict[Relation, tuple[np.ndarray, np.ndarray]] = {}
    names: set[str] = set()
    order = np.argsort(triples.relations, kind="stable")
    bounds = np.searchsorted(triples.relations[order], np.arange(len(triples.predicates) + 1))
    for predicate, iri in enumerate(triples.predicates):
        if predicate in removed:
            continue
        # `rev_` is how inverses are called here.
        name = unused(local_name(iri).removeprefix("rev_") or "relation", names)
        names.add(name)
        chosen = order[bounds[predicate] : bounds[predicate + 1]]
        edges[Relation(ENTITY, name, ENTITY)] = (triples.subjects[chosen], triples.objects[chosen])
    if not edges:
        raise InputError("rdf: no relation is left once the target relations are removed")
    # Every relation gets its inverse, as in the paper, also where the data names one (`carriedOutBy`).
    return edges | {relation.reversed(): (objects, subjects) for relation, (subjects, objects) in edges.items()}
