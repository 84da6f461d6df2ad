"""Knowledge graphs as files of triples: `train.txt`, `valid.txt` and `test.txt`, a row `head TAB relation TAB tail`.

This is the layout of FB15k-237 and WN18RR. All entities are nodes of the type `entity`, numbered as they appear; every
name of a relation is a relation from `entity` to `entity`, and every triple of the three files one of its edges.
"""

from pathlib import Path

import numpy as np

from jhgnn.data.names import plain, unused
from jhgnn.data.source import Source, open_source
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation

ENTITY = "entity"
_FILES = {"train": "train.txt", "val": "valid.txt", "test": "test.txt"}


def read_triples(
    path: str | Path | None, *, target: str | None = None, seed: int = 0, progress: bool = True
) -> HeteroGraph:
    """Reads a knowledge graph with its link split, from its folder or zip.

    Args:
        path: folder or zip; the files may lie in one sub-folder of it.
        target: refused: nothing is labelled.
        seed: unused, the splits are the files.
        progress: unused, the files are small.

    Raises:
        InputError: a file is missing or damaged, or a row has not three fields; file and row are named.
    """
    if target is not None:
        raise InputError(f"triples have no labels, so no target {target!r}; they are for task.name = 'link_prediction'")
    with open_source(path, *_FILES.values(), what="triples") as source:
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}
        rows = {split: _read(source, file, entities, relations) for split, file in _FILES.items()}
        where = source.shown
    names: dict[str, None] = {}
    for name in relations:
        names[unused(plain(name), names)] = None
    schema = tuple(Relation(ENTITY, name, ENTITY) for name in names)
    every = np.concatenate(list(rows.values()))
    order = np.argsort(every[:, 1], kind="stable")
    ends = np.searchsorted(every[order, 1], np.arange(len(schema) + 1))
    edges = {}
    for number, relation in enumerate(schema):
        own = np.unique(every[order[ends[number] : ends[number + 1]]], axis=0)
        edges[relation] = own[:, 0], own[:, 2]
    return HeteroGraph.from_arrays(
        name=Path(where).stem,
        where=where,
        num_nodes={ENTITY: len(entities)},
        edges=edges,
        links=LinkTriples(schema, rows),
    )


def _read(source: Source, name: str, entities: dict[str, int], relations: dict[str, int]) -> np.ndarray:
    rows = []
    for row, line in source.lines(name):
        fields = line.split("\t")
        if len(fields) != 3 or not all(field.strip() for field in fields):
            raise InputError(f"{source.where(name)} row {row} has {len(fields)} fields; need head, relation, tail")
        head, relation, tail = (field.strip() for field in fields)
        rows.append(
            (
                entities.setdefault(head, len(entities)),
                relations.setdefault(relation, len(relations)),
                entities.setdefault(tail, len(entities)),
            )
        )
    if not rows:
        raise InputError(f"{source.where(name)} has no triples")
    return np.array(rows, np.int32)
