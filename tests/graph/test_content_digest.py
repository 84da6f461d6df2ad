"""Two graphs say the same of their content where they hold the same, and where not, what differs."""

import dataclasses

import numpy as np
import pytest

from jhgnn.data import load_graph, save_graph
from jhgnn.graph import content_digest
from jhgnn.graph.content_digest import content
from tests.models.heterographs import academic


def different(one, other) -> set[str]:
    a, b = content(one), content(other)
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


def test_the_same_graph_read_twice_or_from_a_copy_says_the_same(tmp_path):
    assert different(academic(), academic()) == set()
    assert different(academic(), load_graph(save_graph(academic(), tmp_path / "copy"))) == set()


def changed_features(graph):
    author = graph.features["author"].copy()
    author[3, 2] += 1e-6
    return {"features": {**graph.features, "author": author}}


def changed_sparse_features(graph):
    paper = graph.features["paper"].copy()
    paper.data[-1] *= 2
    return {"features": {**graph.features, "paper": paper}}


def changed_edges(graph):
    relation = graph.schema.relations[0]
    senders = graph.edges[relation].senders.copy()
    senders[0] += 1
    return {"edges": {**graph.edges, relation: dataclasses.replace(graph.edges[relation], senders=senders)}}


def changed_labels(graph):
    return {"labels": np.where(graph.labels == 0, 1, graph.labels)}


def changed_split(graph):
    return {"splits": {**graph.splits, "val": graph.splits["val"][:-1]}}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (changed_features, "features of 'author'"),
        (changed_sparse_features, "features of 'paper'"),
        (changed_edges, "edges of 'writes'"),
        (changed_labels, "labels"),
        (changed_split, "the val split"),
    ],
)
def test_what_changed_is_named(change, name):
    graph = academic()
    (found,) = different(graph, dataclasses.replace(graph, **change(graph)))
    assert name.split("'")[0] in found


def test_of_a_large_array_blocks_are_read_over_all_of_its_length(monkeypatch):
    monkeypatch.setattr(content_digest, "BLOCK_BYTES", 64)
    monkeypatch.setattr(content_digest, "MOST_BYTES", 640)
    graph = academic()
    rows = np.random.default_rng(0).normal(size=(25, 320)).astype(np.float32)  # 500 blocks, of which 10 are read
    large = dataclasses.replace(graph, features={**graph.features, "author": rows})
    assert different(large, large) == set()
    for place, is_seen in ((0, True), (50 * 16, True), (450 * 16 + 15, True), (16, False)):
        other = rows.copy()
        other.reshape(-1)[place] += 1
        changed = dataclasses.replace(graph, features={**graph.features, "author": other})
        assert bool(different(large, changed)) == is_seen, place
