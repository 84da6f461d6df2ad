"""Small heterographs for model and training tests, with every awkward thing in them."""

import dataclasses

import numpy as np
from scipy import sparse

from jhgnn.graph.hetero_graph import HeteroGraph


def academic(
    seed: int = 0, papers: int = 40, authors: int = 25, subjects: int = 4, *, multi_label: bool = False
) -> HeteroGraph:
    """Papers (sparse features, labelled), authors (dense features), subjects (none); isolated nodes, parallel edges."""
    rng = np.random.default_rng(seed)
    writes = (rng.integers(0, authors - 1, 90), rng.integers(0, papers - 1, 90))
    about = (rng.integers(0, subjects, papers), np.arange(papers))
    bag = (rng.random((papers, 12)) < 0.3).astype(np.float32)
    labels = rng.integers(0, 3, papers)
    if multi_label:
        labels = (rng.random((papers, 3)) < 0.4).astype(np.uint8)
    order = rng.permutation(papers)
    return HeteroGraph.from_arrays(
        name="academic",
        num_nodes={"paper": papers, "author": authors, "subject": subjects},
        edges={
            ("author", "writes", "paper"): writes,
            ("paper", "written_by", "author"): writes[::-1],
            ("subject", "covers", "paper"): about,
            ("paper", "is_about", "subject"): about[::-1],
        },
        features={"paper": sparse.csr_array(bag), "author": rng.normal(size=(authors, 5))},
        target="paper",
        labels=labels,
        splits={"train": order[:20], "val": order[20:30], "test": order[30:]},
    )


def with_edge_features(graph: HeteroGraph, seed: int = 0) -> HeteroGraph:
    """The graph with features on edges from authors (one of three kinds, and a number) and from subjects (numbers)."""
    rng = np.random.default_rng(seed)
    edges = dict(graph.edges)
    for relation, own in graph.edges.items():
        if relation.source == "author":
            kinds = np.eye(3, dtype=np.float32)[rng.integers(0, 3, own.num_edges)]
            edges[relation] = dataclasses.replace(
                own, features=np.column_stack([kinds, rng.integers(0, 2, own.num_edges)]).astype(np.float32)
            )
        elif relation.source == "subject":
            features = rng.normal(size=(own.num_edges, 2)).astype(np.float32)
            edges[relation] = dataclasses.replace(own, features=features)
    return dataclasses.replace(graph, edges=edges)
