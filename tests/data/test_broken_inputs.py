"""Broken inputs, each with the one line that its reader must answer; the table is the specification."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from jhgnn.data import load, save_graph
from jhgnn.data.arrays import read_arrays
from jhgnn.errors import InputError
from tests.data import layouts

Break = Callable[[dict[str, bytes]], object]


def replaced(name: str, old: bytes, new: bytes) -> Break:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return change


def given(name: str, data: bytes) -> Break:
    return lambda files: files.update({name: data})


def missing(name: str) -> Break:
    return lambda files: files.pop(name)


def cut(name: str, keep: float = 0.6) -> Break:
    return lambda files: files.update({name: files[name][: int(keep * len(files[name]))]})


def csv(*rows: str) -> bytes:
    return gzip.compress("\n".join(rows).encode())


def arrays(**changes: object) -> Break:
    return given("x.npz", layouts.npz(**layouts.arrays(**changes)))


def mat(**changes: object) -> Break:
    return given("ACM3025.mat", layouts.acm_mat(**changes)["ACM3025.mat"])


PICKLE = b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00]\x94K\x01a."
OBJECTS = np.array([{"a": 1}], dtype=object)
CITES, WRITES = "raw/relations/paper___cites___paper/", "raw/relations/author___writes___paper/"
FEATURES = "raw/node-feat/paper/node-feat.csv.gz"
TRAIN = "split/time/paper/train.csv.gz"
NAN = sparse.csr_array(([1.0, np.nan], ([0, 2], [0, 1])), shape=(3, 8))

LAYOUTS: dict[str, Callable[[], dict[str, bytes]]] = {
    "hgb": layouts.hgb,
    "magnn": layouts.magnn,
    "acm_mat": layouts.acm_mat,
    "rdf": layouts.rdf,
    "ogb_mag": layouts.ogb_mag,
    "arrays": lambda: {"x.npz": layouts.npz(**layouts.arrays())},
    "triples": layouts.triples,
    "lastfm": layouts.lastfm,
}

SPLITS_OF_LINKS = {"train_idx": np.array([0, 9]), "val_idx": np.array([1]), "test_idx": np.array([2])}

CASES: list[tuple[str, str, Break, str]] = [
    ("triples", "no valid.txt", missing("valid.txt"), r"holds no valid\.txt"),
    ("triples", "two fields", replaced("train.txt", b"is a\t", b"is a "), r"train\.txt row 2 has 2 fields; need head"),
    ("triples", "an empty field", replaced("test.txt", b"is a", b" "), r"test\.txt row 1 has 3 fields; need head"),
    ("triples", "empty split", given("valid.txt", b"\n"), r"valid\.txt has no triples"),
    ("triples", "not UTF-8", given("test.txt", b"\xff\tr\tx\n"), r"test\.txt row 1 is not UTF-8"),
    ("lastfm", "no splits", missing("train_val_test_idx.npz"), r"holds no train_val_test_idx\.npz"),
    ("lastfm", "no friends", missing("user_user(original).dat"), r"user_user\(original\)\.dat is missing"),
    ("lastfm", "id 0", replaced("artist_tag.dat", b"1\t5", b"0\t5"), r"artist_tag\.dat row 1: \[0, 5\] must be ids"),
    ("lastfm", "word", replaced("user_artist.dat", b"50", b"often"), r"user_artist\.dat row 1.*often"),
    ("lastfm", "no rows", given("user_artist.dat", b""), r"user_artist\.dat has no rows"),
    ("lastfm", "no key", given("train_val_test_idx.npz", layouts.npz(a=np.zeros(1))), r"has no key 'train_idx'"),
    ("lastfm", "row out of range", given("train_val_test_idx.npz", layouts.npz(**SPLITS_OF_LINKS)), r"rows .* 0 to 4"),
    ("hgb", "no node.dat", missing("node.dat"), r"holds no node\.dat; found: info\.dat"),
    ("hgb", "no label.dat", missing("label.dat"), r"label\.dat is missing"),
    ("hgb", "no test labels", missing("label.dat.test"), r"label\.dat\.test is missing"),
    ("hgb", "empty node.dat", given("node.dat", b"\n"), r"node\.dat has no nodes"),
    ("hgb", "node twice", replaced("node.dat", b"6\tfun\t2", b"5\tfun\t2"), r"node\.dat row 7 gives node 5 twice"),
    ("hgb", "gap in ids", replaced("node.dat", b"6\tfun", b"9\tfun"), r"node\.dat: node 6 is missing \(row 7"),
    ("hgb", "word for an id", replaced("node.dat", b"4\tA\t1", b"x\tA\t1"), r"node\.dat row 5.*'x \.\.\. 1'"),
    ("hgb", "short node row", replaced("node.dat", b"6\tfun\t2", b"6\tfun"), r"node\.dat row 7 has 2 fields"),
    ("hgb", "NaN attribute", replaced("node.dat", b"-1e-3", b"nan"), r"node\.dat row 5: attribute 1 is 'nan'"),
    ("hgb", "attribute beyond float32", replaced("node.dat", b"2,3", b"2,1e99"), r"node\.dat rows 5 to 6: .* float32"),
    ("hgb", "word attribute", replaced("node.dat", b"2,3", b"2,tall"), r"node\.dat row 6: attribute 1 is 'tall'"),
    ("hgb", "letter among digits", replaced("node.dat", b"0,1,0", b"0,z,0"), r"row 1: attribute 1 is 'z'"),
    ("hgb", "attribute too many", replaced("node.dat", b"2,3", b"2,3,4"), r"row 6 has 3 attributes;.* has 2"),
    ("hgb", "node without attributes", replaced("node.dat", b"\t2,3", b""), r"row 6 has no attributes"),
    ("hgb", "link out of range", replaced("link.dat", b"3\t5\t", b"3\t77\t"), r"link\.dat row 3: target 77 .* 0 to 6"),
    ("hgb", "negative link", replaced("link.dat", b"3\t5\t", b"-3\t5\t"), r"link\.dat row 3: source -3"),
    ("hgb", "word in links", replaced("link.dat", b"3\t5\t0", b"3\tfive\t0"), r"link\.dat row 3: 'five' is not a numb"),
    ("hgb", "half a link", replaced("link.dat", b"3\t5\t0\t1.0", b"3\t5"), r"link\.dat row 3 has 2 fields; need 4"),
    ("hgb", "broken id", replaced("link.dat", b"3\t5\t", b"3\t5.5\t"), r"row 3: target 5\.5 is not a whole number"),
    ("hgb", "infinite weight", replaced("link.dat", b"2.5", b"inf"), r"weights of 'movie:about:keyword'.*inf"),
    ("hgb", "wrong link types", replaced("link.dat", b"3\t5\t0", b"3\t6\t0"),
     r"row 3: link 3 6 joins movie to keyword"),
    ("hgb", "no links", given("link.dat", b""), r"link\.dat has no links"),
    ("hgb", "label out of range", replaced("label.dat", b"0,2", b"0,3"), r"label\.dat row 1: label 3.*0 to 2"),
    ("hgb", "class out of range", given("info.dat", b"TYPE\tCLASS\tMEANING\n0\t999999999\tdrama\n"),
        r"info\.dat names class 999999999 of 'type0'; need 0 to 65535"),
    ("hgb", "negative label", replaced("label.dat", b"0,2", b"-1"), r"label\.dat row 1: label -1"),
    ("hgb", "word for a label", replaced("label.dat", b"0,2", b"drama"), r"label\.dat row 1"),
    ("hgb", "label of wrong type", replaced("label.dat", b"1\tAlien\t0", b"1\tAlien\t1"),
     r"row 2: node 1 is of type 0"),
    ("hgb", "label of no node", replaced("label.dat", b"1\tAlien", b"50\tAlien"), r"row 2: node 50 is out of range"),
    ("hgb", "label twice", replaced("label.dat.test", b"3\tHeat", b"1\tAlien"), r"dat\.test row 1 labels node 1 for"),
    ("hgb", "one train label", replaced("label.dat", b"1\tAlien\t0\t2\n", b""), r"1 labelled nodes; need two"),
    ("hgb", "empty test split", given("label.dat.test", b""), r"label\.dat\.test has no labels"),
    ("hgb", "label not UTF-8", replaced("label.dat", b"Alien", b"\xff\xfe"), r"label\.dat row 2 is not UTF-8"),
    ("magnn", "no adjacency", missing("adjM.npz"), r"holds no adjM\.npz"),
    ("magnn", "no labels", missing("labels.npy"), r"labels\.npy is missing"),
    ("magnn", "labels are a pickle", given("labels.npy", PICKLE), r"labels\.npy is a pickle"),
    ("magnn", "labels are objects", given("labels.npy", layouts.npy(OBJECTS)), r"labels\.npy holds Python objects"),
    ("magnn", "splits of objects", given("train_val_test_idx.npz", layouts.npz(train_idx=OBJECTS)), r"Python objects"),
    ("magnn", "truncated labels", cut("labels.npy", 0.95), r"labels\.npy is damaged or truncated"),
    ("magnn", "truncated adjacency", cut("adjM.npz"), r"adjM\.npz is damaged or truncated"),
    ("magnn", "text for labels", given("labels.npy", b"0\n1\n1\n"), r"labels\.npy is not a \.npy file"),
    ("magnn", "labels for no type", given("labels.npy", layouts.npy(np.zeros(9, int))),
     r"9 labels; no type .* type0 3"),
    ("magnn", "NaN features", given("features_0.npz", layouts.sparse_npz(NAN)), r"'type0': nan at row 2"),
    ("magnn", "missing type", given("node_types.npy", layouts.npy(np.array([0, 2, 0, 0, 2]))), r"types \[0, 2\]"),
    ("magnn", "too few types", given("node_types.npy", layouts.npy(np.array([0, 1, 0, 0]))), r"adjM\.npz has shape"),
    ("magnn", "splits overlap", given("train_val_test_idx.npz",
        layouts.npz(train_idx=np.array([0]), val_idx=np.array([0]), test_idx=np.array([1]))), r"node 0 is in 'val'"),
    ("magnn", "split out of range", given("train_val_test_idx.npz",
        layouts.npz(train_idx=np.array([0]), val_idx=np.array([3]), test_idx=np.array([1]))), r"'val': id 3"),
    ("magnn", "no val key", given("train_val_test_idx.npz", layouts.npz(train_idx=np.array([0]))), r"no key 'val_idx'"),
    ("magnn", "sparse index out of range", given("features_0.npz", layouts.npz(
        indices=np.array([99]), indptr=np.array([0, 1, 1, 1]), shape=np.array([3, 8]), data=np.ones(1))),
        r"features_0\.npz is not a valid sparse matrix"),
    ("acm_mat", "no .mat", missing("ACM3025.mat"), r"holds no \*\.mat"),
    ("acm_mat", "truncated", cut("ACM3025.mat"), r"not a readable \.mat file"),
    ("acm_mat", "HDF5", given("ACM3025.mat", b"MATLAB 7.3 MAT-file"), r"MATLAB 7\.3"),
    ("acm_mat", "no labels", mat(label=None), r"no variable 'label'"),
    ("acm_mat", "no metapaths", mat(PAP=None, PLP=None, PTP=None), r"no 4 x 4 matrix of a metapath"),
    ("acm_mat", "empty split", mat(val_idx=np.zeros((1, 0))), r"split 'val' is empty"),
    ("acm_mat", "split out of range", mat(test_idx=np.array([[4]])), r"'test': id 4"),
    ("rdf", "no triples file", missing("people_stripped.nt.gz"), r"holds no \*\.nt\*"),
    ("rdf", "no test TSV", missing("testSet.tsv"), r"holds no \*test\*\.tsv"),
    ("rdf", "truncated gzip", cut("people_stripped.nt.gz"), r"nt\.gz is damaged or truncated"),
    ("rdf", "not gzip", given("people_stripped.nt.gz", b"<a> <b> <c> ."), r"nt\.gz is damaged"),
    ("rdf", "no object", given("people_stripped.nt.gz", csv("<http://a> <http://b> .")), r"row 1: .*is not a triple"),
    ("rdf", "only comments", given("people_stripped.nt.gz", csv("# nothing")), r"has no triples"),
    ("rdf", "no entities", given("trainingSet.tsv", b"id\tperson\tlabel\n"), r"trainingSet\.tsv has no entities"),
    ("rdf", "unknown entities", given("trainingSet.tsv", b"id\tperson\tlabel\n1\tx\ta\n2\ty\tb\n"), r"holds entities"),
    ("rdf", "short TSV row", replaced("testSet.tsv", b"\t" + layouts.GROUP.format(0).encode(), b""), r"row 2 has 2 fi"),
    ("rdf", "no label", replaced("testSet.tsv", layouts.GROUP.format(0).encode(), b""), r"row 2: .* has no label"),
    ("rdf", "train in test", lambda files: files.update({"testSet.tsv": files["trainingSet.tsv"]}), r"as well"),
    ("rdf", "two train TSVs", given("trainingSet(2).tsv", b"x"), r"several \*train\*\.tsv"),
    ("ogb_mag", "no counts", missing("raw/num-node-dict.csv.gz"), r"holds no raw/num-node-dict\.csv\.gz"),
    ("ogb_mag", "no edges", missing(CITES + "edge.csv.gz"), r"edge\.csv\.gz is missing"),
    ("ogb_mag", "wrong count", given(CITES + "num-edge-list.csv.gz", csv("5")), r"4 edges; .* says 5"),
    ("ogb_mag", "edge out of range", given(WRITES + "edge.csv.gz", csv("0,0", "0,1", "1,3")),
     r"row 3: paper 3 .* 0 to 2"),
    ("ogb_mag", "word for an edge", given(WRITES + "edge.csv.gz", csv("0,0", "0,a", "1,2")), r"row 2: 'a' is not a wh"),
    ("ogb_mag", "NaN features", given(FEATURES, csv("1,2", "3,nan", "5,6")), r"'paper': nan at row 1"),
    ("ogb_mag", "empty feature", given(FEATURES, csv("1,2", "3,", "5,6")),
     r"node-feat\.csv\.gz row 2: '' is not a num"),
    ("ogb_mag", "row too few", given(FEATURES, csv("1,2", "3,4")), r"\(2, 2\); need 3 rows"),
    ("ogb_mag", "negative label", given("raw/node-label/paper/node-label.csv.gz", csv("0", "-2", "1")),
     r"label -2 at row 1"),
    ("ogb_mag", "empty split", given(TRAIN, csv()), r"train\.csv\.gz is an empty split"),
    ("ogb_mag", "split out of range", given(TRAIN, csv("0", "8")), r"train\.csv\.gz row 2: paper 8 is out of range"),
    ("ogb_mag", "unknown type", given("raw/triplet-type-list.csv.gz", csv("paper,in,venue")),
     r"row 1: unknown .*'venue'"),
    ("ogb_mag", "no split", lambda files: [files.pop(name) for name in list(files) if "split/" in name],
     r"need one split"),
    ("ogb_mag", "bad counts", given("raw/num-node-dict.csv.gz", csv("paper,author", "3,many")),
     r"'many' is not a number"),
    ("arrays", "no edges", arrays(paper_author=None, paper__in__venue=None), r"has no edges"),
    ("arrays", "edges of floats", arrays(paper__in__venue=np.zeros((2, 1))), r"'paper__in__venue' have shape"),
    ("arrays", "edge out of range", arrays(paper_author=np.array([[0], [2]])), r"receivers of .*: id 2 at row 0"),
    ("arrays", "short num_nodes", arrays(num_nodes=np.array([3, 2])), r"'num_nodes' has shape \(2,\)"),
    ("arrays", "no num_nodes", arrays(num_nodes=None), r"need the key 'num_nodes'"),
    ("arrays", "labels for no type", arrays(label=np.zeros(7, int)), r"'label' has 7 rows"),
    ("arrays", "label of floats", arrays(label=np.array([0.5, 1, 0])), r"labels are float64 and not whole"),
    ("arrays", "features of words", arrays(author_feat=np.array([["a"], ["b"]])), r"'author_feat' has shape"),
    ("arrays", "infinite features", arrays(author_feat=np.array([[1.0], [np.inf]])), r"'author': inf at row 1"),
    ("arrays", "unlabelled in split", arrays(train_idx=np.array([2])), r"'train' holds the unlabelled node 2"),
    ("arrays", "node twice in split", arrays(train_idx=np.array([0, 0])), r"'train' holds node 0 twice"),
    ("arrays", "pickled key", arrays(author_feat=OBJECTS), r"author_feat\.npy holds Python objects"),
    ("arrays", "pickle for npz", given("x.npz", PICKLE), r"x\.npz is a pickle"),
    ("arrays", "weights too few", arrays(paper__in__venue_weight=np.ones(1)), r"2 edges but weights \(1,\)"),
    ("arrays", "unknown target key", arrays(target=np.array("venues")), r"'target' is 'venues'"),
]  # fmt: skip


def one_line(format: str, path: Path | str | None, expected: str, **options: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load(format, path, progress=False, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("format", "breakage", "expected"), [(c[0], c[2], c[3]) for c in CASES],
                         ids=[f"{c[0]}-{c[1]}" for c in CASES])  # fmt: skip
def test_broken_files(tmp_path, format, breakage, expected):
    files = LAYOUTS[format]()
    load(format, layouts.write(files, tmp_path / "whole"), progress=False)
    breakage(files)
    one_line(format, layouts.write(files, tmp_path / "broken"), expected)


@pytest.mark.parametrize("format", [*LAYOUTS, "jhgnn"])
def test_paths_that_are_nothing(tmp_path, format):
    one_line(format, tmp_path / "nowhere", "does not exist")
    one_line(format, None, "no path is given")
    (tmp_path / "text.txt").write_text("hello")
    one_line(format, tmp_path / "text.txt", "not a folder|neither a folder nor a zip")


def test_unknown_format(tmp_path):
    one_line("hgbb", tmp_path, "'hgbb' is unknown; need one of hgb, magnn")


@pytest.mark.parametrize("format", LAYOUTS)
def test_target_without_labels(tmp_path, format):
    one_line(format, layouts.write(LAYOUTS[format](), tmp_path), "'nobody'", target="nobody")


def test_truncated_zip(tmp_path):
    path = layouts.zipped(layouts.hgb(), tmp_path / "x.zip")
    path.write_bytes(path.read_bytes()[:300])
    one_line("hgb", path, "is not a complete zip")


def test_zip_with_a_damaged_member(tmp_path):
    path = layouts.zipped(layouts.hgb(), tmp_path / "x.zip")
    data = bytearray(path.read_bytes())
    start = data.index(b"node.dat") + 8
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)
    one_line("hgb", path, r"node\.dat is damaged or truncated")


@pytest.mark.parametrize("name", ["../evil.dat", "/etc/evil.dat", "a/../../evil.dat", "C:\\evil.dat"])
def test_zip_that_names_files_outside_itself(tmp_path, name):
    path = layouts.zipped(layouts.hgb() | {name: b"x"}, tmp_path / "x.zip")
    one_line("hgb", path, "outside the archive")
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["x.zip"]


def test_zip_in_a_zip_way_that_python_cannot_read(tmp_path):
    path = tmp_path / "x.zip"
    layouts.zipped(layouts.hgb(), path)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # mark every member as encrypted
        start = data.find(signature)
        while start >= 0:
            data[start + offset] |= 1
            start = data.find(signature, start + 4)
    path.write_bytes(data)
    one_line("hgb", path, "cannot be read.*encrypted")


def test_folder_of_two_data_sets(tmp_path):
    for name in ("a", "b"):
        layouts.write(layouts.hgb(), tmp_path / name)
    one_line("hgb", tmp_path, "holds several data sets")


STORED: list[tuple[str, Callable[[Path], object], str]] = [
    ("no schema", lambda p: (p / "schema.json").unlink(), r"schema\.json is missing"),
    ("schema is no JSON", lambda p: (p / "schema.json").write_text("{"), r"schema\.json cannot be read"),
    ("schema of something else", lambda p: (p / "schema.json").write_text("{}"), "not of format"),
    ("version", lambda p: edit(p, version=99), "version 99; this release reads version 1"),
    ("schema without relations", lambda p: edit(p, relations=None), "entry missing or of the wrong type"),
    ("unknown target", lambda p: edit(p, target="nobody"), "target 'nobody' is not a node type"),
    ("unknown split", lambda p: edit(p, splits=["dev"]), "split 'dev' is unknown"),
    ("no array", lambda p: (p / "labels.npy").unlink(), r"labels\.npy is missing"),
    ("pickle", lambda p: (p / "labels.npy").write_bytes(PICKLE), r"labels\.npy is a pickle"),
    ("objects", lambda p: np.save(p / "labels.npy", OBJECTS), r"labels\.npy is a pickle or holds Python objects"),
    ("truncated", lambda p: truncate(p / "relation0_senders.npy"), r"relation0_senders\.npy is damaged"),
    ("other length", lambda p: np.save(p / "relation0_senders.npy", np.zeros(1, np.int32)), "has 1 rows; need 3"),
    ("id out of range", lambda p: np.save(p / "relation0_senders.npy", np.int32([0, 1, 3])), "id 3 at entry 2"),
    ("offsets fall", lambda p: np.save(p / "relation0_indptr.npy", np.int64([0, 4, 3])), "must rise from 0 to 3"),
    ("NaN", lambda p: np.save(p / "type1_features.npy", np.full((2, 2), np.nan, np.float32)), "not finite"),
    ("other dtype", lambda p: np.save(p / "labels.npy", np.zeros(3)), "need 1 dimensions of int32"),
    ("senders of 64 bits", lambda p: np.save(p / "relation0_senders.npy", np.zeros(3, np.int64)), "of int32"),
    ("header", lambda p: damage_header(p / "labels.npy"), r"labels\.npy is damaged"),
    ("archive", lambda p: (p / "labels.npy").write_bytes(layouts.npz(a=np.zeros(3))), "is an archive"),
    ("class count", lambda p: edit(p, num_classes="two"), "entry missing or of the wrong type"),
    ("label out of range", lambda p: np.save(p / "labels.npy", np.int32([0, 7, 0])), "label 7 at row 1"),
    ("empty split", lambda p: np.save(p / "split_train.npy", np.zeros(0, np.int32)), "'train' is empty"),
]


def edit(folder: Path, **changes: object) -> None:
    path = folder / "schema.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def damage_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"}", b" ", 1))


@pytest.mark.parametrize(("breakage", "expected"), [c[1:] for c in STORED], ids=[c[0] for c in STORED])
def test_broken_storage(tmp_path, breakage, expected):
    graph = read_arrays(layouts.write(LAYOUTS["arrays"](), tmp_path / "arrays"))
    path = save_graph(graph, tmp_path / "graph")
    breakage(path)
    one_line("jhgnn", path, expected)
