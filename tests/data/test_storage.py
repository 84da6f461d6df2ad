"""Storage gives back exactly what was saved, maps it, and never leaves half a graph."""

import dataclasses
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn.data import load, load_graph, save_graph
from jhgnn.data import storage as storage_module
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.hetero_graph import EdgeSet, HeteroGraph
from jhgnn.graph.schema import Relation

NAMES = st.sampled_from(["paper", "Paper", "..", "größe", "a-b", "rev_x"])


@st.composite
def heterographs(draw):
    """Up to 3 types and 4 relations of any density, with and without features, weights, labels and splits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    types = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    num_nodes = {name: draw(st.integers(0, 6)) for name in types}
    edges = {}
    for source, name, end in draw(st.lists(st.tuples(*[st.sampled_from(types), NAMES, st.sampled_from(types)]),
                                           max_size=4, unique=True)):  # fmt: skip
        count = draw(st.integers(0, 9)) if num_nodes[source] and num_nodes[end] else 0
        edges[source, name, end] = (
            rng.integers(0, max(1, num_nodes[source]), count),
            rng.integers(0, max(1, num_nodes[end]), count),
            rng.random(count).astype(np.float32) if draw(st.booleans()) else None,
        )
    features = {}
    for name, count in num_nodes.items():
        kind = draw(st.sampled_from(["none", "dense", "csr"]))
        if kind == "dense":
            features[name] = rng.standard_normal((count, 3)).astype(np.float32)
        elif kind == "csr":
            features[name] = sparse.random_array((count, 5), density=0.3, rng=rng, dtype=np.float32)
    labelled = {}
    target = types[0]
    if num_nodes[target] >= 3 and draw(st.booleans()):
        labels = rng.integers(0, 2, (num_nodes[target], 4) if draw(st.booleans()) else num_nodes[target])
        order = rng.permutation(num_nodes[target])
        labelled = {"target": target, "labels": labels, "num_classes": 4 if labels.ndim == 2 else 5,
                    "splits": {"train": order[:1], "val": order[1:2], "test": order[2:]}}  # fmt: skip
    if labelled and draw(st.booleans()):
        labelled["class_names"] = ["a", "b", "größe", "d", "e"][: 4 if labelled["labels"].ndim == 2 else 5]
    edge_sets = {}
    for relation, (senders, receivers, weights) in edges.items():
        times = rng.integers(-5, 5, len(senders)) if draw(st.booleans()) else None
        edge_sets[Relation(*relation)] = EdgeSet.from_pairs(senders, receivers, num_nodes[relation[2]], weights, times)
    kinds = {name: draw(st.sampled_from(["none", "integers", "strings"])) for name in types}
    keys = {
        name: rng.permutation(10)[:count] * 10**12 if kinds[name] == "integers" else
        np.array(["", "1", "ü", "a b", "long enough to need a block of its own", "x"])[:count]
        for name, count in num_nodes.items() if kinds[name] != "none"
    }  # fmt: skip
    columns = {
        name: (FeatureColumn("n", "number", 1, {"mean": 0.5}), FeatureColumn("v", "vector", matrix.shape[1] - 1))
        for name, matrix in features.items()
        if draw(st.booleans())
    }
    node_times = {name: rng.integers(0, 9, count) for name, count in num_nodes.items() if draw(st.booleans())}
    return HeteroGraph.from_arrays(
        num_nodes=num_nodes, edges=edge_sets, features=features, name="drawn", keys=keys, columns=columns,
        node_times=node_times, time_unit=draw(st.sampled_from(["", "us"])), **labelled
    )  # fmt: skip


def assert_same(a: HeteroGraph, b: HeteroGraph) -> None:
    assert (a.name, a.schema, dict(a.num_nodes), a.target, a.num_classes) == (
        b.name, b.schema, dict(b.num_nodes), b.target, b.num_classes,
    )  # fmt: skip
    assert list(a.features) == list(b.features)
    for name, matrix in a.features.items():
        other = b.features[name]
        if sparse.issparse(matrix):
            assert matrix.shape == other.shape
            for part in ("data", "indices", "indptr"):
                same_array(getattr(matrix, part), getattr(other, part))
        else:
            same_array(matrix, other)
    assert list(a.edges) == list(b.edges)
    for relation, edges in a.edges.items():
        for part in ("indptr", "senders", "weights", "times"):
            same_array(getattr(edges, part), getattr(b.edges[relation], part))
    same_array(a.labels, b.labels)
    assert list(a.splits) == list(b.splits)
    for split, ids in a.splits.items():
        same_array(ids, b.splits[split])
    for name in ("keys", "node_times"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert list(ours) == list(theirs)
        for node_type, array in ours.items():
            same_array(array, theirs[node_type])
    assert (a.class_names, a.time_unit, a.columns) == (b.class_names, b.time_unit, b.columns)


def same_array(a, b):
    assert (a is None) == (b is None)
    if a is not None:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=heterographs())
def test_round_trip_is_exact(tmp_path, graph):
    path = save_graph(graph, tmp_path / "graph", overwrite=True)
    assert_same(graph, load_graph(path))
    assert_same(graph, load("jhgnn", path, target=graph.target))


def small() -> HeteroGraph:
    return HeteroGraph.from_arrays(
        num_nodes={"a": 2}, edges={("a", "r", "a"): (np.array([0]), np.array([1]))}, features={"a": np.eye(2)}
    )


def test_labels_and_splits_of_a_replaced_graph_are_written_as_they_are_read(tmp_path):
    ids = np.array([0, 1])
    assert ids.dtype == np.int64
    graph = dataclasses.replace(small(), target="a", labels=ids, num_classes=2, splits={"train": ids})
    loaded = load_graph(save_graph(graph, tmp_path / "graph"))
    assert (loaded.labels.dtype, loaded.splits["train"].dtype) == (np.int32, np.int32)
    np.testing.assert_array_equal(loaded.labels, ids)
    np.testing.assert_array_equal(loaded.splits["train"], ids)


def test_arrays_are_mapped_and_read_only(tmp_path):
    graph = load_graph(save_graph(small(), tmp_path / "g"))
    (edges,) = graph.edges.values()
    for array in (edges.senders, edges.indptr, graph.features["a"]):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_an_existing_path_is_only_replaced_on_purpose_and_if_it_is_a_graph(tmp_path):
    save_graph(small(), tmp_path / "g")
    with pytest.raises(InputError, match="exists"):
        save_graph(small(), tmp_path / "g")
    save_graph(small(), tmp_path / "g", overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(InputError, match="not a saved graph"):
        save_graph(small(), tmp_path / "thesis", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "thesis"]


def test_a_failed_save_leaves_the_old_graph_and_no_rest(tmp_path, monkeypatch):
    path = save_graph(small(), tmp_path / "g")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage_module.os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        save_graph(small(), path, overwrite=True)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == ["g"]
    assert load_graph(path).num_edges == 1


def test_no_pickle_is_written(tmp_path):
    path = save_graph(small(), tmp_path / "g")
    assert {file.suffix for file in path.iterdir()} == {".npy", ".json"}
    for file in path.glob("*.npy"):
        np.load(file, allow_pickle=False)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_parent(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"):
        save_graph(small(), tmp_path / "g")


def test_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_graph(small(), tmp_path / "file" / "g")
