"""The real data sets against the counts that their SOURCE.md gives, and against each other."""

import numpy as np
import pytest
from scipy import sparse

from jhgnn.data import load


@pytest.fixture(scope="module")
def graphs(data_root):
    """Loads each data set once."""
    loaded = {}

    def get(format, name):
        if name not in loaded:
            loaded[name] = load(format, data_root / name, seed=1, progress=False)
        return loaded[name]

    return get


def edge_counts(graph):
    return {f"{r.source[0]}{r.target[0]}:{r.name}": edges.num_edges for r, edges in graph.edges.items()}


def split_sizes(graph):
    return tuple(len(graph.splits[split]) for split in ("train", "val", "test"))


def adjacency(graph, source, target):
    (relation,) = graph.schema.relations_between(source, target)
    edges = graph.edges[relation]
    shape = (graph.num_nodes[target], graph.num_nodes[source])
    return sparse.csr_array((np.ones(edges.num_edges, np.int64), edges.senders, edges.indptr), shape=shape)


def test_hgb_acm(graphs):
    graph = graphs("hgb", "hgb_acm")
    assert graph.num_nodes == {"paper": 3025, "author": 5959, "subject": 56, "term": 1902}
    assert edge_counts(graph) == {
        "pp:cite": 5343, "pp:ref": 5343, "pa:paper-author": 9949, "ap:author-paper": 9949,
        "ps:paper-subject": 3025, "sp:subject-paper": 3025, "pt:paper-term": 255619, "tp:term-paper": 255619,
    }  # fmt: skip
    nonzeros = {name: np.count_nonzero(m.data if sparse.issparse(m) else m) for name, m in graph.features.items()}
    assert nonzeros == {"paper": 255619, "author": 697969, "subject": 26730}
    assert [sparse.issparse(graph.features[name]) for name in ("paper", "author", "subject")] == [True, True, False]
    assert (graph.features["paper"] != adjacency(graph, "term", "paper")).nnz == 0
    assert (graph.target, split_sizes(graph)) == ("paper", (726, 181, 2118))
    np.testing.assert_array_equal(np.bincount(graph.labels), [994, 970, 1061])


def test_hgb_dblp(graphs):
    graph = graphs("hgb", "hgb_dblp")
    assert graph.num_nodes == {"author": 4057, "paper": 14328, "term": 7723, "venue": 20}
    assert list(edge_counts(graph).values()) == [19645, 85810, 14328, 19645, 85810, 14328]
    assert {name: matrix.shape[1] for name, matrix in graph.features.items()} == {
        "author": 334,
        "paper": 4231,
        "term": 50,
    }
    assert (graph.target, split_sizes(graph)) == ("author", (974, 243, 2840))
    np.testing.assert_array_equal(np.bincount(graph.labels), [1197, 745, 1109, 1006])


def test_both_dblp_copies_are_the_same_graph(graphs):
    ours, theirs = graphs("hgb", "hgb_dblp"), graphs("magnn", "magnn_dblp")
    assert ours.num_nodes == theirs.num_nodes
    assert set(ours.edges) == set(theirs.edges)
    for relation, edges in ours.edges.items():
        assert edges.joins_as(theirs.edges[relation])
        assert edges.weights is theirs.edges[relation].weights is None
    for name in ("author", "paper"):
        assert (ours.features[name] != theirs.features[name]).nnz == 0
    np.testing.assert_array_equal(ours.features["term"], theirs.features["term"])
    np.testing.assert_array_equal(ours.labels, theirs.labels)


def test_magnn_imdb(graphs):
    graph = graphs("magnn", "magnn_imdb")
    assert graph.num_nodes == {"movie": 4278, "director": 2081, "actor": 5257}
    assert sorted(edge_counts(graph).values()) == [4278, 4278, 12828, 12828]
    assert {name: (m.nnz, m.shape[1]) for name, m in graph.features.items()} == {
        "movie": (27175, 3066), "director": (25784, 3066), "actor": (76501, 3066),
    }  # fmt: skip
    assert split_sizes(graph) == (400, 400, 3478)
    np.testing.assert_array_equal(np.bincount(graph.labels), [1135, 1584, 1559])
    via_actors = adjacency(graph, "actor", "movie") @ adjacency(graph, "movie", "actor")
    assert via_actors.nnz == 85358


def test_acm_gtn(graphs):
    graph = graphs("arrays", "acm_gtn")
    assert graph.num_nodes == {"paper": 3025, "author": 5912, "subject": 57}
    assert edge_counts(graph) == {
        "pa:paper-author": 9936, "ps:paper-subject": 3025,
        "ap:rev_paper-author": 9936, "sp:rev_paper-subject": 3025,
    }  # fmt: skip
    to_paper = [adjacency(graph, name, "paper") for name in ("author", "subject")]
    assert [(matrix @ matrix.T).nnz for matrix in to_paper] == [29436, 2200581]
    assert graph.features["paper"].nnz == 257484
    assert graph.features["paper"].shape == (3025, 1902)
    assert split_sizes(graph) == (600, 300, 2125)
    np.testing.assert_array_equal(np.bincount(graph.labels), [994, 970, 1061])


def test_acm_han3025(graphs):
    graph = graphs("acm_mat", "acm_han3025")
    assert edge_counts(graph) == {"pp:PAP": 29281, "pp:PLP": 2210761}
    assert graph.features["paper"].nnz == 253300
    assert split_sizes(graph) == (600, 300, 2125)
    np.testing.assert_array_equal(np.bincount(graph.labels), [1061, 965, 999])


def test_aifb(graphs):
    graph = graphs("rdf", "rdf_aifb")
    assert graph.num_nodes == {"entity": 8285}
    forward = [relation for relation in graph.edges if not relation.name.startswith("rev_")]
    assert len(forward) == 45
    assert len(graph.edges) == 90
    assert sum(graph.edges[relation].num_edges for relation in forward) == 29043
    assert split_sizes(graph) == (112, 28, 36)
    assert sorted(np.bincount(graph.labels[graph.labels >= 0]).tolist()) == [15, 28, 60, 73]


def test_validation_follows_the_run_seed(data_root, graphs):
    other = load("rdf", data_root / "rdf_aifb", seed=2, progress=False)
    graph = graphs("rdf", "rdf_aifb")
    assert not np.array_equal(other.splits["val"], graph.splits["val"])
    np.testing.assert_array_equal(other.splits["test"], graph.splits["test"])


@pytest.mark.parametrize(
    ("format", "name"),
    [("hgb", "hgb_acm/ACM.zip"), ("acm_mat", "acm_han3025/ACM3025.mat"), ("arrays", "acm_gtn/acm_gtn.npz")],
)
def test_the_file_itself_reads_as_its_folder(data_root, graphs, format, name):
    graph = load(format, data_root / name, seed=1, progress=False)
    assert edge_counts(graph) == edge_counts(graphs(format, name.split("/")[0]))


def test_fb15k237(graphs):
    graph = graphs("triples", "kg_fb15k237")
    assert graph.num_nodes == {"entity": 14541}
    assert len(graph.edges) == 237
    assert graph.num_edges == 310116
    assert {split: len(rows) for split, rows in graph.links.triples.items()} == {
        "train": 272115,
        "val": 17535,
        "test": 20466,
    }


def test_lastfm(graphs):
    graph = graphs("lastfm", "lastfm_magnn")
    assert graph.num_nodes == {"user": 1892, "artist": 17632, "tag": 9718}
    assert edge_counts(graph) == {
        "ua:listens_to": 92834,
        "uu:knows": 25434,
        "at:has_tag": 108437,
        "au:rev_listens_to": 92834,
        "ta:rev_has_tag": 108437,
    }
    assert [len(rows) for rows in graph.links.triples.values()] == [64984, 9283, 18567]
