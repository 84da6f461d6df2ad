"""The neutral folder that every framework reads."""

import numpy as np

from bench.comparison.graph_folder import PlainGraph, read_graph, write_graph


def test_graph_folder_round_trip(tmp_path):
    graph = PlainGraph(
        name="two",
        num_nodes={"a": 3, "b": 2},
        relations=[("a", "to", "b")],
        edges=[(np.array([0, 2]), np.array([1, 1]))],
        features={"a": np.eye(3, dtype=np.float32)},
        target="b",
        labels=np.array([0, 1]),
        num_classes=2,
        splits={"train": np.array([0]), "val": np.array([1])},
        metapaths={"x": [0]},
    )
    write_graph(graph, tmp_path / "g")
    back = read_graph(tmp_path / "g")
    np.testing.assert_array_equal(back.edges[0], graph.edges[0])
    np.testing.assert_array_equal(back.features["a"], graph.features["a"])
    assert (back.relations, back.metapaths, back.num_nodes) == (graph.relations, graph.metapaths, graph.num_nodes)
