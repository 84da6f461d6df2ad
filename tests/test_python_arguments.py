"""Wrong arguments of `load`, `HeteroGraph.from_arrays`, `node_ids` and `save_graph`: one line each, as of recipes."""

import numpy as np
import pytest

import jhgnn
from jhgnn import HeteroGraph, InputError

EDGES = {("a", "r", "a"): (np.array([0]), np.array([1]))}
RAGGED = [[1], [1, 2]]


def made(**changes) -> HeteroGraph:
    return HeteroGraph.from_arrays(**({"num_nodes": {"a": 2}, "edges": EDGES} | changes))


def of_edges(value) -> HeteroGraph:
    return made(edges={("a", "r", "a"): value})


LABELLED = {"target": "a", "labels": [0, 1]}
ARRAYS = {
    "nodes as a number": (lambda: made(num_nodes=3), "num_nodes must be a dictionary, not int"),
    "nodes in words": (lambda: made(num_nodes={"a": "two"}), "node type 'a' has 'two' nodes; need a whole number"),
    "nodes that are none": (lambda: made(num_nodes={"a": None}), "node type 'a' has None nodes"),
    "nodes that are not a number": (lambda: made(num_nodes={"a": float("nan")}), "node type 'a' has nan nodes"),
    "half a node": (lambda: made(num_nodes={"a": 2.5}), "node type 'a' has 2.5 nodes"),
    "negative nodes": (lambda: made(num_nodes={"a": -1}), "node type 'a' has -1 nodes"),
    "edges as a list": (lambda: made(edges=[(0, 1)]), "edges must be a dictionary, not list"),
    "relation by one name": (lambda: made(edges={"r": ([0], [1])}), "key 'r'; need (source type, relation, target"),
    "relation by two names": (lambda: made(edges={("a", "a"): ([0], [1])}), "key ('a', 'a'); need (source type, rel"),
    "edges that are none": (lambda: of_edges(None), "edges of 'a:r:a' are NoneType; need (senders, receivers)"),
    "edges that are text": (lambda: of_edges("01"), "edges of 'a:r:a' are str; need (senders, receivers)"),
    "pairs as rows": (lambda: of_edges(np.zeros((5, 2), int)), "has 5 arrays; need senders, receivers[, weights"),
    "ragged senders": (lambda: of_edges((RAGGED, [1])), "senders of 'a:r:a' cannot be made an array"),
    "negative sender": (lambda: of_edges(([-1], [1])), "id -1 at row 0 is out of range; need 0 to 1"),
    "weights in words": (lambda: of_edges(([0], [1], ["x"])), "weights of 'a:r:a' are <U1; need numbers"),
    "infinite weight": (lambda: of_edges(([0], [1], [np.inf])), "weights of 'a:r:a': inf at row 0; need finite"),
    "features as a list": (lambda: made(features=[1]), "features must be a dictionary, not list"),
    "flat features": (lambda: made(features={"a": np.zeros(2)}), "features of 'a' have shape (2,); need 2 rows"),
    "ragged features": (lambda: made(features={"a": RAGGED}), "features of 'a' cannot be made an array"),
    "a feature that is no number": (lambda: made(features={"a": [[np.nan], [1]]}), "nan at row 0; need finite"),
    "ragged labels": (lambda: made(target="a", labels=RAGGED), "labels cannot be made an array"),
    "one label": (lambda: made(target="a", labels=3), "labels have shape (); need 2 rows"),
    "classes in words": (lambda: made(**LABELLED, num_classes="two"), "num_classes is 'two'; need a whole number"),
    "negative classes": (lambda: made(**LABELLED, num_classes=-2), "num_classes is -2; need a whole number"),
    "several targets": (lambda: made(target=["a"], labels=[0, 1]), "target ['a'] is not a node type; known: a"),
    "splits as a list": (lambda: made(**LABELLED, splits=[[0], [1]]), "splits must be a dictionary, not list"),
    "split that is none": (lambda: made(**LABELLED, splits={"train": None}), "ids of split 'train' have shape ()"),
    "misspelt split": (lambda: made(**LABELLED, splits={"valid": [0]}), "split 'valid' is unknown; need train, val"),
    "keys as a list": (lambda: made(keys=["x", "y"]), "keys must be a dictionary, not list"),
    "a number of names": (lambda: made(**LABELLED, class_names=3), "class_names must be a list, not int"),
    "links as a list": (lambda: made(links=[1]), "links must be LinkTriples, not list"),
}  # fmt: skip
OTHERS = {
    "misspelt format": (lambda folder: jhgnn.load("hbg", folder), "data.format 'hbg' is unknown; need one of hgb"),
    "path in the place of a format": (lambda folder: jhgnn.load("ACM.zip"), "data.format 'ACM.zip' is unknown"),
    "formats": (lambda folder: jhgnn.load(["hgb"], folder), "data.format ['hgb'] is unknown"),
    "no path": (lambda folder: jhgnn.load("hgb"), "hgb: no path is given; need a folder or a zip"),
    "a number as path": (lambda folder: jhgnn.load("hgb", 3), "data.path must be the path of a folder or file, not in"),
    "missing file": (lambda folder: jhgnn.load("hgb", folder / "none.zip"), "none.zip does not exist"),
    "another folder": (lambda folder: jhgnn.load("hgb", folder), "holds no node.dat, link.dat; found: x.txt"),
    "no saved graph": (lambda folder: jhgnn.load("jhgnn", folder), "schema.json is missing: not a saved graph"),
    "misspelt preset": (lambda folder: jhgnn.load("synthetic", "acmm"), "'acmm' is unknown; need one of acm, imdb"),
    "scale in words": (lambda folder: jhgnn.load("synthetic", "acm", scale="big"), "need a number in (0, 1]"),
    "one key": (lambda folder: made().node_ids("a", "c7"), "keys of 'a' must be a list or a one-dimensional array"),
    "a number as keys": (lambda folder: made().node_ids("a", 3), "keys of 'a' must be a list or a one-dimensional"),
    "several types": (lambda folder: made().node_ids(["a"], [0]), "['a'] is not a node type of 'graph'; known: a"),
    "no graph": (lambda folder: jhgnn.save_graph("a", folder / "g"), "graph must be a HeteroGraph, not str"),
    "no path to save at": (lambda folder: jhgnn.save_graph(made(), None), "path must be the path of a folder, not Non"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_wrong_arrays_are_one_line(case):
    call, message = ARRAYS[case]
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", OTHERS)
def test_what_cannot_be_loaded_found_or_saved_is_one_line(case, tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    call, message = OTHERS[case]
    with pytest.raises(InputError) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
