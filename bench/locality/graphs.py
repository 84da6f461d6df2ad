"""The semantic graphs that are looked at: every relation and every metapath of the paper's Table 3, and others.

The form of the predicted slowdown was revised after looking at Table 3's; the others try it on other graphs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.gpu.cases import DATA
from bench.semantic_graph_build import TABLE_3, read_graphs
from jhgnn.data.formats import load
from jhgnn.data.synthetic import generate
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.schema import Metapath
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_metapath, build_relation

DATASETS = tuple(TABLE_3)
OTHERS = ("lastfm", "hgb_acm", "aifb")
LEAST_EDGES = 3_000
"""Of other relations, as the smallest of Table 3's has."""


class Named(NamedTuple):
    """A semantic graph with its data set and its name; `metapath` is None for relations."""

    dataset: str
    name: str
    graph: SemanticGraph
    metapath: Metapath | None

    @property
    def key(self) -> str:
        return f"{self.dataset} {self.name}"


def heterographs(data_root: Path | None) -> dict[str, HeteroGraph]:
    """ACM, IMDB and DBLP: real ones from that folder, or synthetic ones of their sizes."""
    if data_root is not None:
        return read_graphs(data_root)
    return {name: generate(name) for name in DATASETS}


def semantic_graphs(graphs: dict[str, HeteroGraph]) -> Iterator[Named]:
    """Relations first, then metapaths, data set after data set."""
    for dataset, heterograph in graphs.items():
        for relation in heterograph.edges:
            built = build_relation(heterograph, relation)
            yield Named(dataset, _short(heterograph, relation.source, relation.target), built, None)
        for text in TABLE_3[dataset]:
            metapath = heterograph.schema.metapath(text)
            yield Named(dataset, text, build_metapath(heterograph, metapath), metapath)


def other_graphs(data_root: Path | None) -> Iterator[Named]:
    """Relations of LastFM, HGB's ACM and AIFB with 3,000 edges and more; none without their files."""
    if data_root is None:
        return
    for dataset in OTHERS:
        layout, folder = DATA[dataset]
        heterograph = load(layout, data_root / folder, progress=False)
        for relation in heterograph.edges:
            built = build_relation(heterograph, relation)
            if built.num_edges >= LEAST_EDGES:
                yield Named(dataset, str(relation), built, None)


def _short(heterograph: HeteroGraph, source: str, target: str) -> str:
    """Initials of the two types, as the paper writes relations."""
    letters = {node_type: letter for letter, node_type in (heterograph.schema.initials or {}).items()}
    return f"{letters.get(source, source)}{letters.get(target, target)}"
