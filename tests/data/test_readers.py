"""Each layout on a tiny folder whose right answer is known by hand."""

import gzip
import logging

import numpy as np
import pytest
from scipy import sparse

from jhgnn.data import FORMATS, load, load_graph, save_graph
from jhgnn.data.acm_mat import read_acm_mat
from jhgnn.data.arrays import read_arrays
from jhgnn.data.describe import describe
from jhgnn.data.hgb import read_hgb
from jhgnn.data.interop_jraph import from_jraph, to_jraph
from jhgnn.data.magnn import read_magnn
from jhgnn.data.ogb_mag import read_ogb_mag
from jhgnn.data.rdf import read_rdf
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.data import layouts
from tests.data.test_storage import assert_same
from tests.graph.empties import with_empties


def pairs(graph: HeteroGraph, relation: str) -> list[tuple[int, int]]:
    """(sender, receiver) of each edge, sorted."""
    edges = {str(key): value for key, value in graph.edges.items()}[relation]
    return sorted(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))


def test_format_names_are_those_of_recipes():
    assert list(FORMATS) == [
        *("hgb", "magnn", "acm_mat", "rdf", "ogb_mag", "arrays", "triples", "lastfm", "tables", "synthetic", "jhgnn")
    ]


def check_tiny_hgb(graph):
    assert graph.num_nodes == {"movie": 4, "actor": 2, "keyword": 1}
    assert pairs(graph, "movie:movie-actor:actor") == [(0, 0), (1, 0), (3, 1)]
    assert pairs(graph, "actor:actor-movie:movie") == [(0, 0), (0, 1), (1, 3)]
    assert pairs(graph, "movie:about:keyword") == [(2, 0)]
    assert pairs(graph, "keyword:rev_about:movie") == [(0, 2)]
    assert len(graph.edges) == 4
    weights = {str(relation): edges.weights for relation, edges in graph.edges.items()}
    assert weights["movie:movie-actor:actor"] is None
    assert weights["movie:about:keyword"] == [2.5]
    assert isinstance(graph.features["movie"], sparse.csr_array)
    np.testing.assert_array_equal(graph.features["movie"].toarray(), [[0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(graph.features["actor"], np.float32([[0.5, -1e-3], [2, 3]]))
    assert "keyword" not in graph.features
    assert graph.target == "movie"
    assert graph.multi_label
    assert graph.num_classes == 3
    np.testing.assert_array_equal(graph.labels, [[1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1]])
    assert sorted([*graph.splits["train"], *graph.splits["val"]]) == [0, 1]
    np.testing.assert_array_equal(graph.splits["test"], [3])


def test_hgb_multi_label_folder(tmp_path):
    check_tiny_hgb(read_hgb(layouts.write(layouts.hgb(), tmp_path)))


def test_hgb_zip_below_a_folder_with_what_macs_add(tmp_path):
    files = layouts.hgb() | {"__MACOSX/._node.dat": b"\0", ".DS_Store": b"\0"}
    check_tiny_hgb(load("hgb", layouts.zipped(files, tmp_path / "tiny.zip", below="IMDB/")))
    check_tiny_hgb(load("hgb", tmp_path))  # the folder that holds the zip
    check_tiny_hgb(load("hgb", layouts.write({f"data/{k}": v for k, v in files.items()}, tmp_path / "unzipped")))


def test_hgb_rows_in_any_order(tmp_path):
    files = layouts.hgb()
    files["node.dat"] = b"\n".join(reversed(files["node.dat"].rstrip(b"\n").split(b"\n")))
    check_tiny_hgb(read_hgb(layouts.write(files, tmp_path)))


@pytest.mark.parametrize("info", [None, b"{ not json", b"{}", b"nothing known\n1\t2\n"])
def test_hgb_without_names(tmp_path, info, caplog):
    files = layouts.hgb()
    del files["info.dat"]
    graph = read_hgb(layouts.write(files | ({} if info is None else {"info.dat": info}), tmp_path))
    assert graph.num_nodes == {"type0": 4, "type1": 2, "type2": 1}
    assert pairs(graph, "type0:type0-type1:type1") == [(0, 0), (1, 0), (3, 1)]
    assert graph.target == "type0"
    assert ("generic names" in caplog.text) == (info == b"{ not json")


def test_hgb_freebase_info_tables(tmp_path):
    info = (
        "TYPE\tMEANING\n0\t\tMOVIE\n1\t\tACTOR\n2\t\tKEY WORD\n\nLINK\tSTART\tEND\tMEANING\n"
        "0\t\t0\t\t1\tMOVIE-with-ACTOR\n1\t\t1\t\t0\tACTOR-in-MOVIE\n2\t\t0\t\t2\tMOVIE-about-KEY WORD\n\n"
        "TYPE\tCLASS\tMEANING\n0\t\t0\t\tDrama\n0\t\t3\t\tWar\n"
    )
    graph = read_hgb(layouts.write(layouts.hgb() | {"info.dat": info.encode()}, tmp_path))
    assert [str(relation) for relation in graph.edges] == [
        "movie:with:actor", "actor:in:movie", "movie:about:key_word", "key_word:rev_about:movie",
    ]  # fmt: skip
    assert graph.num_classes == 4


def test_hgb_relation_between_several_types_without_info_is_cut(tmp_path):
    files = layouts.hgb()
    del files["info.dat"]
    files["link.dat"] = files["link.dat"].replace(b"\t1\t1.0", b"\t0\t1.0")
    graph = read_hgb(layouts.write(files, tmp_path), reverse=False)
    assert [str(relation) for relation in graph.edges] == [
        "type0:type0-type1:type1", "type1:type1-type0:type0", "type0:type0-type2:type2",
    ]  # fmt: skip


def test_hgb_validation_follows_the_seed(tmp_path):
    files = layouts.hgb()
    files["node.dat"] = b"".join(b"%d\t\t0\n" % i for i in range(100))
    files["link.dat"] = b"0\t1\t0\t1\n"
    files["label.dat"] = b"".join(b"%d\t\t0\t%d\n" % (i, i % 3) for i in range(50))
    files["label.dat.test"] = b"".join(b"%d\t\t0\t%d\n" % (i, i % 3) for i in range(50, 90))
    del files["info.dat"]
    layouts.write(files, tmp_path)
    first, again, other = (read_hgb(tmp_path, seed=seed).splits for seed in (1, 1, 2))
    assert len(first["val"]) == 10
    np.testing.assert_array_equal(first["val"], again["val"])
    assert not np.array_equal(first["val"], other["val"])
    np.testing.assert_array_equal(first["test"], other["test"])
    np.testing.assert_array_equal(np.sort(np.concatenate([first["train"], first["val"]])), np.arange(50))


def test_hgb_link_prediction_set_has_no_labels(tmp_path):
    files = layouts.hgb()
    del files["label.dat"], files["label.dat.test"]
    layouts.write(files | {"link.dat.test": b"0\t4\t0\t1\n"}, tmp_path)
    graph = read_hgb(tmp_path)
    assert (graph.target, graph.labels, graph.splits) == (None, None, {})
    with pytest.raises(InputError, match="no labels"):
        read_hgb(tmp_path, target="movie")


def test_hgb_several_labelled_types_need_a_target(tmp_path):
    files = layouts.hgb()
    files["label.dat"] += b"4\t\t1\t0\n"
    layouts.write(files, tmp_path)
    with pytest.raises(InputError, match="movie, actor"):
        read_hgb(tmp_path)
    assert read_hgb(tmp_path, target="movie").target == "movie"


def test_magnn_unknown_data_set_with_interleaved_types(tmp_path):
    graph = read_magnn(layouts.write(layouts.magnn(), tmp_path / "raw").parent)
    assert graph.num_nodes == {"type0": 3, "type1": 2}
    assert pairs(graph, "type0:type0-type1:type1") == [(0, 0), (1, 0), (2, 1)]
    assert pairs(graph, "type1:type1-type0:type0") == [(0, 0), (0, 1), (1, 2)]
    assert sparse.issparse(graph.features["type0"])
    np.testing.assert_array_equal(graph.features["type1"], [[0.5, 1], [2, 3]])
    np.testing.assert_array_equal(graph.labels, [0, 1, 1])
    named = read_magnn(layouts.zipped(layouts.magnn(), tmp_path / "x.zip"), types=("user", "item"), target="user")
    assert [str(relation) for relation in named.edges] == ["user:user-item:item", "item:item-user:user"]


def test_magnn_one_direction_gets_reverses(tmp_path):
    adjacency = sparse.csr_array(([1, 1, 3], ([0, 2, 3], [1, 1, 4])), shape=(5, 5))
    graph = read_magnn(layouts.write(layouts.magnn() | {"adjM.npz": layouts.sparse_npz(adjacency)}, tmp_path))
    assert pairs(graph, "type1:rev_type0-type1:type0") == [(0, 0), (0, 1), (1, 2)]
    np.testing.assert_array_equal(next(iter(graph.edges.values())).weights, [1, 1, 3])


def test_acm_mat_from_file_folder_and_zip(tmp_path):
    folder = layouts.write(layouts.acm_mat(), tmp_path / "a")
    for path in (folder, folder / "ACM3025.mat", layouts.zipped(layouts.acm_mat(), tmp_path / "a.zip", "x/")):
        graph = read_acm_mat(path)
        assert [str(relation) for relation in graph.edges] == ["paper:PAP:paper", "paper:PLP:paper"]
        assert pairs(graph, "paper:PAP:paper") == [(0, 0), (1, 1), (2, 2), (3, 3)]
        np.testing.assert_array_equal(graph.labels, [0, 1, 0, 1])
        assert {split: ids.tolist() for split, ids in graph.splits.items()} == {
            "train": [0, 1],
            "val": [2],
            "test": [3],
        }
    assert [relation.name for relation in read_acm_mat(folder, metapaths=["PTP"]).edges] == ["PTP"]


def test_acm_mat_other_names_leave_out_what_joins_nearly_all(tmp_path):
    layouts.write(layouts.acm_mat(PAP=None, net_APA=np.eye(4), PLP=None), tmp_path)
    assert [str(relation) for relation in read_acm_mat(tmp_path).edges] == ["author:APA:author"]


def test_rdf_removes_what_gives_labels_away_and_adds_inverses(tmp_path):
    graph = read_rdf(layouts.write(layouts.rdf(), tmp_path))
    names = [relation.name for relation in graph.edges]
    assert names == ["knows", "name", "name_2", "rev_knows", "rev_name", "rev_name_2"]
    assert graph.num_nodes == {"entity": 6 + 2 + 6 + 6}  # people, groups, literals, blank nodes
    assert pairs(graph, "entity:rev_knows:entity") == sorted((b, a) for a, b in pairs(graph, "entity:knows:entity"))
    assert (graph.labels >= 0).sum() == 6
    assert graph.num_classes == 2
    assert {split: len(ids) for split, ids in graph.splits.items()} == {"train": 3, "val": 1, "test": 2}
    assert not graph.features


def test_rdf_named_target_relations(tmp_path):
    layouts.write(layouts.rdf(), tmp_path)
    names = {relation.name for relation in read_rdf(tmp_path, target_relations=["knows"]).edges}
    assert {"worksIn", "rev_worksIn"} <= names
    assert "knows" not in names


def test_rdf_labels_that_are_no_entities(tmp_path):
    """MUTAG: classes 0 and 1 in the TSV, true and false in the triples, the entity's column first."""
    files = {
        "mutag.nt": b"",
        "trainingSet.tsv": b"bond\tid\tlabel_mutagenic\n",
        "testSet.tsv": b"bond\tlabel_mutagenic\n",
    }
    for i in range(8):
        flag = b"true" if i % 2 else b"false"
        files["mutag.nt"] += (
            b'<http://d#d%d> <http://d#isMutagenic> "%s"^^<http://w3#boolean> .\n'
            b'<http://d#d%d> <http://d#charge> "%d" .\n<http://d#d%d> <http://d#hasAtom> <http://d#a%d> .\n'
            % (i, flag, i, i // 2, i, i)
        )
        if i < 6:
            files["trainingSet.tsv"] += b"http://d#d%d\t%d\t%d\n" % (i, i, i % 2)
        else:
            files["testSet.tsv"] += b"http://d#d%d\t%d\n" % (i, i % 2)
    graph = read_rdf(layouts.write(files, tmp_path))
    assert [relation.name for relation in graph.edges] == ["charge", "hasAtom", "rev_charge", "rev_hasAtom"]
    assert len(graph.splits["test"]) == 2
    assert graph.num_classes == 2


def test_rdf_repeated_triples_and_escapes_count_once(tmp_path):
    extra = f"<{layouts.PERSON.format(0)}> <http://example.org/knows> <{layouts.PERSON.format(1)}> .\n"
    extra += "<http://example.org/caf\\u00E9> <http://example.org/knows> <http://example.org/a b> .\n"
    graph = read_rdf(layouts.write(layouts.rdf(extra), tmp_path))
    assert len(pairs(graph, "entity:knows:entity")) == 7


def test_rdf_says_which_entities_are_in_no_triple(tmp_path, caplog):
    files = layouts.rdf()
    files["trainingSet.tsv"] += b"\n9\thttp://example.org/person/9\thttp://example.org/group#0"
    with caplog.at_level(logging.WARNING):
        graph = read_rdf(layouts.write(files, tmp_path))
    assert "person/9" in caplog.text
    assert (graph.labels >= 0).sum() == 6


def check_tiny_mag(graph):
    assert graph.num_nodes == {"author": 2, "field_of_study": 2, "institution": 1, "paper": 3}
    assert pairs(graph, "author:writes:paper") == [(0, 0), (0, 1), (1, 2)]
    assert pairs(graph, "paper:rev_writes:author") == [(0, 0), (1, 0), (2, 1)]
    assert pairs(graph, "paper:cites:paper") == [(0, 1), (0, 2), (1, 0), (2, 0), (2, 2)]
    assert len(graph.edges) == 7
    np.testing.assert_array_equal(graph.features["paper"], np.float32([[0.5, -1.25e-2], [1, 2], [3, 4]]))
    np.testing.assert_array_equal(graph.labels, [1, 0, 2])
    assert {split: ids.tolist() for split, ids in graph.splits.items()} == {"train": [0], "val": [1], "test": [2]}
    assert graph.target == "paper"


def test_ogb_mag_folder_and_zip(tmp_path):
    check_tiny_mag(read_ogb_mag(layouts.write(layouts.ogb_mag(), tmp_path / "mag")))
    check_tiny_mag(load("ogb_mag", layouts.zipped(layouts.ogb_mag(), tmp_path / "mag.zip", "mag/"), target="paper"))


def test_ogb_mag_directed(tmp_path):
    graph = read_ogb_mag(layouts.write(layouts.ogb_mag(), tmp_path), undirected_cites=False, reverse=False)
    assert len(graph.edges) == 4
    assert pairs(graph, "paper:cites:paper") == [(0, 1), (0, 2), (1, 0), (2, 2)]


def check_tiny_arrays(graph):
    assert graph.num_nodes == {"paper": 3, "author": 2, "venue": 1}
    assert pairs(graph, "paper:paper-author:author") == [(0, 0), (1, 1), (2, 1)]
    assert pairs(graph, "venue:rev_in:paper") == [(0, 0), (0, 2)]
    np.testing.assert_array_equal(graph.features["paper"].toarray()[[0, 2], [7, 0]], [1, 1])
    np.testing.assert_array_equal(graph.features["author"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(graph.labels, [1, 0, -1])
    assert {split: ids.tolist() for split, ids in graph.splits.items()} == {"train": [0], "val": [1]}
    assert graph.target == "paper"


def test_arrays_from_npz_folder_and_npys(tmp_path, caplog):
    folder = layouts.write({"tiny.npz": layouts.npz(**layouts.arrays())}, tmp_path / "one")
    with caplog.at_level(logging.INFO):
        check_tiny_arrays(read_arrays(folder))
    assert "curator_note" in caplog.text
    check_tiny_arrays(read_arrays(folder / "tiny.npz"))
    ordered = layouts.arrays(node_types=np.array(["paper", "author", "venue"]))
    single = {f"{key}.npy": layouts.npy(array) for key, array in ordered.items()}
    check_tiny_arrays(read_arrays(layouts.write(single, tmp_path / "many")))
    check_tiny_arrays(read_arrays(layouts.zipped(single, tmp_path / "many.zip")))


def test_arrays_type_names_with_underscores_and_own_labels(tmp_path):
    keys = layouts.arrays(
        paper_author=None, my_paper_author=np.array([[0, 1], [1, 0]]), paper__in__venue=None, num_nodes=None,
        node_types=np.array(["my_paper", "author"]), my_paper_num_nodes=np.array(3), author_num_nodes=np.array(2),
        label=None, author_label=np.array([[0, 1], [1, 1]]), train_idx=np.array([1]), val_mask=None,
    )  # fmt: skip
    graph = read_arrays(layouts.write({"x.npz": layouts.npz(**keys)}, tmp_path), reverse=False)
    assert [str(relation) for relation in graph.edges] == ["my_paper:my_paper-author:author"]
    assert graph.target == "author"
    assert graph.multi_label


def test_scale_is_for_synthetic_data_alone(tmp_path):
    with pytest.raises(InputError, match="scale"):
        load("hgb", tmp_path, scale=0.5)
    assert load("synthetic", "acm", scale=0.02, seed=3).target == "paper"


def test_triples_become_relations_between_entities_with_their_split(tmp_path):
    graph = load("triples", layouts.zipped(layouts.triples(), tmp_path / "tiny.zip", below="KG/"))
    assert graph.num_nodes == {"entity": 3}
    assert pairs(graph, "entity:film_actor:entity") == [(0, 1), (1, 0)]
    assert pairs(graph, "entity:is_a:entity") == [(0, 1), (0, 2), (1, 0)]
    assert graph.links is not None
    assert [relation.name for relation in graph.links.relations] == ["film_actor", "is_a"]
    found = {split: triples.tolist() for split, triples in graph.links.triples.items()}
    assert found == {"train": [[0, 0, 1], [1, 1, 0], [0, 1, 1]], "val": [[1, 0, 0]], "test": [[0, 1, 2]]}


def test_lastfm_has_links_tags_in_use_and_reverses(tmp_path):
    graph = load("lastfm", layouts.write(layouts.lastfm(), tmp_path))
    assert graph.num_nodes == {"user": 3, "artist": 4, "tag": 2}
    assert pairs(graph, "user:listens_to:artist") == [(0, 0), (0, 1), (1, 1), (2, 0), (2, 3)]
    assert pairs(graph, "artist:has_tag:tag") == [(0, 0), (1, 1), (2, 0)]
    assert pairs(graph, "user:knows:user") == [(0, 1), (1, 0)]
    assert [str(relation) for relation in graph.schema.relations[3:]] == [
        "artist:rev_listens_to:user",
        "tag:rev_has_tag:artist",
    ]
    assert graph.links is not None
    found = {split: triples.tolist() for split, triples in graph.links.triples.items()}
    assert found == {"train": [[0, 0, 0], [1, 0, 1], [2, 0, 3]], "val": [[0, 0, 1]], "test": [[2, 0, 0]]}


@pytest.mark.parametrize("format", ["triples", "lastfm"])
def test_links_survive_storage(format, tmp_path):
    graph = load(format, layouts.write(getattr(layouts, format)(), tmp_path / "raw"))
    again = load("jhgnn", save_graph(graph, tmp_path / "saved"))
    assert graph.links is not None
    assert again.links is not None
    assert again.links.relations == graph.links.relations
    for split, triples in graph.links.triples.items():
        np.testing.assert_array_equal(again.links.triples[split], triples)


def test_types_without_nodes_and_relations_without_edges(tmp_path):
    """In the layouts that can have them; describing, converting and storing such a graph work as for any other."""
    files = layouts.ogb_mag()
    files["raw/num-node-dict.csv.gz"] = gzip.compress(b"author,field_of_study,institution,paper\n2,2,0,3\n")
    for name in ("author___affiliated_with___institution", "paper___cites___paper"):
        files[f"raw/relations/{name}/edge.csv.gz"] = gzip.compress(b"")
        files[f"raw/relations/{name}/num-edge-list.csv.gz"] = gzip.compress(b"0\n")
    graph = load("ogb_mag", layouts.write(files, tmp_path / "ogb"))
    assert graph.num_nodes["institution"] == 0
    assert {str(relation): edges.num_edges for relation, edges in graph.edges.items()} == {
        "author:affiliated_with:institution": 0, "institution:rev_affiliated_with:author": 0, "paper:cites:paper": 0,
        "author:writes:paper": 3, "paper:rev_writes:author": 3,
        "paper:has_topic:field_of_study": 3, "field_of_study:rev_has_topic:paper": 3,
    }  # fmt: skip
    changed = layouts.arrays(
        num_nodes=np.array([3, 2, 0]), paper__in__venue=np.zeros((2, 0)), paper__in__venue_weight=None
    )
    folder = layouts.write({"x.npz": layouts.npz(**changed)}, tmp_path / "arrays")
    assert pairs(read_arrays(folder), "paper:in:venue") == []
    broken = layouts.arrays(num_nodes=np.array([3, 2, 0]))
    with pytest.raises(InputError, match=r"id 0 at row 0 is out of range; the type has no nodes"):
        read_arrays(layouts.write({"x.npz": layouts.npz(**broken)}, tmp_path / "broken"))


def test_empties_are_described_converted_and_stored(tmp_path):
    graph = read_hgb(layouts.write(layouts.hgb(), tmp_path / "hgb"))
    more = with_empties(graph)
    assert_same(load_graph(save_graph(more, tmp_path / "stored")), more)
    there_and_back = from_jraph(to_jraph(more))
    assert dict(there_and_back.num_nodes) == dict(more.num_nodes)
    assert [edges.num_edges for edges in there_and_back.edges.values()] == [e.num_edges for e in more.edges.values()]
    sections = {section.title: section for section in describe(more)}
    assert ("void", "0", "none", "", "", "") in sections["node types"].rows
    plain = {section.title: section for section in describe(graph)}
    title = "metapaths, as the schema suggests them"
    assert sections[title].rows == plain[title].rows
