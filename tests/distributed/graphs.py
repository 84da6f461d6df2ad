"""Heterographs to cut into parts, with every awkward thing in them, and one with planted communities."""

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from jhgnn.distributed.assignment import Assignment
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.link_triples import LinkTriples
from jhgnn.graph.schema import Relation


def random_graph(seed: int) -> HeteroGraph:
    """Papers with sparse or dense features, labels and splits; authors with weighted edges; venues with nothing.

    Isolated nodes, parallel edges, self-loops, an empty relation, and at some seeds several labels a node or links.
    """
    rng = np.random.default_rng(seed)
    papers, authors, venues = (int(n) for n in rng.integers((4, 1, 1), (20, 12, 4)))

    def edges(sources: int, targets: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, sources, count), rng.integers(0, targets, count)

    writes = edges(authors, papers, int(rng.integers(1, 40)))
    features: object = rng.normal(size=(papers, 3))
    if seed % 2:
        features = sparse.csr_array((rng.random((papers, 6)) < 0.4) * rng.random((papers, 6)))
    order = rng.permutation(papers)
    labels = rng.integers(0, 3, papers) if seed % 3 else (rng.random((papers, 3)) < 0.5).astype(np.uint8)
    links = None
    if seed % 4 == 0:
        triples = np.stack([writes[0], np.zeros_like(writes[0]), writes[1]], axis=1).astype(np.int32)
        links = LinkTriples((Relation("author", "writes", "paper"),), {"train": triples, "test": triples[:1]})
    return HeteroGraph.from_arrays(
        name=f"random{seed}",
        num_nodes={"paper": papers, "author": authors, "venue": venues},
        edges={
            ("author", "writes", "paper"): (*writes, rng.random(len(writes[0]))),
            ("paper", "rev_writes", "author"): writes[::-1],
            ("paper", "cites", "paper"): edges(papers, papers, int(rng.integers(0, 30))),
            ("venue", "of", "paper"): edges(venues, papers, 0),
        },
        features={"paper": features, "author": rng.normal(size=(authors, 2))},
        target="paper",
        labels=labels,
        splits={"train": order[: papers // 2], "test": order[papers // 2 : papers // 2 + 1]},
        links=links,
    )


@st.composite
def graphs_in_parts(draw: st.DrawFn) -> tuple[HeteroGraph, Assignment]:
    """A random graph and any assignment of its nodes, empty parts included."""
    graph = random_graph(draw(st.integers(0, 10_000)))
    num_parts = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    parts = {name: rng.integers(0, num_parts, count).astype(np.int32) for name, count in graph.num_nodes.items()}
    return graph, Assignment(num_parts, parts, "drawn", 7)


def communities(num_communities: int = 4, papers_each: int = 60, seed: int = 0) -> HeteroGraph:
    """Papers and authors in communities that nine edges of ten stay within; half of the papers train."""
    rng = np.random.default_rng(seed)
    papers, authors = num_communities * papers_each, num_communities * papers_each // 2
    count = 8 * papers
    receivers = rng.integers(0, papers, count)
    near = receivers // papers_each * (papers_each // 2) + rng.integers(0, papers_each // 2, count)
    senders = np.where(rng.random(count) < 0.9, near, rng.integers(0, authors, count))
    # Ids say nothing about communities.
    paper_ids, author_ids = rng.permutation(papers), rng.permutation(authors)
    pairs = author_ids[senders], paper_ids[receivers]
    return HeteroGraph.from_arrays(
        name="communities",
        num_nodes={"paper": papers, "author": authors},
        edges={("author", "writes", "paper"): pairs, ("paper", "rev_writes", "author"): pairs[::-1]},
        features={"paper": rng.normal(size=(papers, 4))},
        target="paper",
        labels=rng.integers(0, 2, papers),
        splits={"train": np.arange(0, papers, 2), "val": np.arange(1, papers, 4)},
    )


def sampled_from() -> HeteroGraph:
    """Papers, authors and topics with hubs, isolated nodes, parallel edges and an empty relation; a third trains."""
    rng = np.random.default_rng(0)
    num_nodes = {"paper": 300, "author": 200, "topic": 50, "venue": 4}

    def edges(source: str, target: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        # The smaller of two draws: degrees from several dozens down to none.
        receivers = np.minimum(rng.integers(0, num_nodes[target], count), rng.integers(0, num_nodes[target], count))
        return rng.integers(0, num_nodes[source], count), receivers

    writes = edges("author", "paper", 900)
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes,
        edges={
            ("paper", "cites", "paper"): edges("paper", "paper", 3000),
            ("author", "writes", "paper"): writes,
            ("paper", "rev_writes", "author"): writes[::-1],
            ("topic", "in", "paper"): edges("topic", "paper", 700),
            ("venue", "of", "paper"): edges("venue", "paper", 0),
        },
        target="paper",
        splits={"train": np.arange(0, 300, 3)},
    )


def same_graph(one: HeteroGraph, other: HeteroGraph) -> bool:
    """Whether two heterographs are equal, links up to their order."""
    return (
        one.schema == other.schema
        and dict(one.num_nodes) == dict(other.num_nodes)
        and all(_same_edges(one, other, relation) for relation in one.edges)
        and all(_dense(one.features[name]).tolist() == _dense(other.features[name]).tolist() for name in one.features)
        and one.features.keys() == other.features.keys()
        and np.array_equal(one.labels, other.labels)
        and one.num_classes == other.num_classes
        and {split: ids.tolist() for split, ids in one.splits.items()}
        == {split: ids.tolist() for split, ids in other.splits.items()}
        and _sorted_links(one) == _sorted_links(other)
    )


def _same_edges(one: HeteroGraph, other: HeteroGraph, relation: Relation) -> bool:
    ours, theirs = one.edges[relation], other.edges[relation]
    if ours.weights is None or theirs.weights is None:
        return ours.joins_as(theirs) and ours.weights is theirs.weights
    # Parallel edges may stand in another order, with their weights.
    rows = [sorted(zip(each.receivers, each.senders, each.weights, strict=True)) for each in (ours, theirs)]
    return rows[0] == rows[1]


def _dense(matrix: object) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def _sorted_links(graph: HeteroGraph) -> object:
    if graph.links is None:
        return None
    return graph.links.relations, {split: sorted(rows.tolist()) for split, rows in graph.links.triples.items()}
