"""Partitions that DGL 1.1.3 wrote (`write_distdgl.py`), read without it, and what cannot be read in one line each."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jhgnn.distributed.dgl_stream import read_graph, read_tensors
from jhgnn.distributed.distdgl import is_distdgl, load_distdgl_part, read_distdgl
from jhgnn.distributed.feature_store import PartFeatureStore
from jhgnn.distributed.part import load_part
from jhgnn.distributed.writing import write_partition
from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation
from tests.distributed.graphs import same_graph

STORED = Path(__file__).parent / "stored"
ACADEMIC, PLAIN = STORED / "distdgl" / "academic.json", STORED / "distdgl_csc" / "plain.json"
CITES = Relation("paper", "cites", "paper")


@pytest.fixture(scope="module")
def numbers() -> dict[str, np.ndarray]:
    """What went into DGL, and the original id of every node, which DGL returns and does not store."""
    with np.load(STORED / "numbers.npz") as archive:
        return dict(archive)


def test_a_heterograph_comes_back(numbers):
    graph, assignment = read_distdgl(ACADEMIC)
    original = {node_type: numbers[f"original/{node_type}"] for node_type in graph.num_nodes}
    assert dict(graph.num_nodes) == {"author": 8, "paper": 12, "venue": 3}
    for relation, edges in graph.edges.items():
        ends = original[relation.source][edges.senders], original[relation.target][edges.receivers]
        assert sorted(zip(*ends, strict=True)) == sorted(zip(*numbers[f"edges/{relation}"], strict=True))
    cites = graph.edges[CITES]
    assert cites.weights is not None
    triples = zip(original["paper"][cites.senders], original["paper"][cites.receivers], cites.weights, strict=True)
    assert sorted(triples) == sorted(zip(*numbers[f"edges/{CITES}"], numbers["cites/weight"], strict=True))
    assert np.array_equal(graph.features["paper"], numbers["paper/feat"][original["paper"]])
    assert np.array_equal(graph.features["author"], numbers["author/feat"].astype(np.float32)[original["author"]])
    assert "venue" not in graph.features
    assert graph.target == "paper"
    assert graph.num_classes == 3
    assert np.array_equal(graph.labels, numbers["paper/label"][original["paper"]])
    for split in ("train", "val", "test"):
        mask = numbers[f"paper/{split}_mask"][original["paper"]]
        assert graph.splits[split].tolist() == np.flatnonzero(mask).tolist()
    ranges = json.loads(ACADEMIC.read_text())["node_map"]
    for node_type in graph.num_nodes:
        lengths = [end - start for start, end in ranges[node_type]]
        assert assignment.parts[node_type].tolist() == np.repeat([0, 1], lengths).tolist()


def test_a_plain_graph_in_csc_comes_back(numbers):
    graph, _ = read_distdgl(PLAIN)
    original = numbers["original/homogeneous"]
    (edges,) = graph.edges.values()
    ends = original[edges.senders], original[edges.receivers]
    assert sorted(zip(*ends, strict=True)) == sorted(zip(*numbers["homogeneous/edges"], strict=True))
    assert np.array_equal(graph.features["_N"], numbers["homogeneous/feat"][original])
    assert graph.target is None


def test_one_part_is_as_one_of_ours(tmp_path):
    """Cut by DGL, or written again as we write parts: the same part, in the same ids."""
    graph, assignment = read_distdgl(ACADEMIC)
    write_partition(graph, assignment, tmp_path / "ours")
    for number in (0, 1):
        theirs, ours = load_distdgl_part(ACADEMIC, number), load_part(tmp_path / "ours", number)
        for relation, edges in ours.edges.items():
            assert edges.joins_as(theirs.edges[relation])
        assert {name: ids.tolist() for name, ids in theirs.halo.items()} == {
            name: ids.tolist() for name, ids in ours.halo.items()
        }
        assert np.array_equal(theirs.labels, ours.labels)
        assert all(np.array_equal(theirs.splits[split], ours.splits[split]) for split in ours.splits)
        owned = theirs.owned("paper")
        ids = np.array([owned.start, -1, owned.stop - 1])
        assert np.array_equal(
            PartFeatureStore(theirs).gather("paper", ids), PartFeatureStore(ours).gather("paper", ids)
        )


def test_original_ids_where_the_pipeline_stored_them(tmp_path, numbers):
    """DGL's distributed pipeline writes `orig_nids.dgl` beside each part's graph."""
    folder = tmp_path / "distdgl"
    shutil.copytree(ACADEMIC.parent, folder)
    for part in (0, 1):
        ids = {}
        for node_type, ranges in json.loads(ACADEMIC.read_text())["node_map"].items():
            starts = np.cumsum([0] + [end - start for start, end in ranges])
            ids[node_type] = numbers[f"original/{node_type}"][starts[part] : starts[part + 1]]
        (folder / f"part{part}" / "orig_nids.dgl").write_bytes(tensors_file(ids))
    graph, _ = read_distdgl(folder / "academic.json")
    assert np.array_equal(graph.labels, numbers["paper/label"])
    assert np.array_equal(graph.features["paper"], numbers["paper/feat"])
    for relation, edges in graph.edges.items():
        pairs = sorted(zip(edges.senders, edges.receivers, strict=True))
        assert pairs == sorted(zip(*numbers[f"edges/{relation}"], strict=True))


def tensors_file(arrays: dict[str, np.ndarray]) -> bytes:
    """int64 arrays as `save_tensors` writes them."""
    data = struct.pack("<QQQ", 0xDD5A9FBE3FA2443F, len(arrays), len(arrays))
    for name, array in arrays.items():
        values = array.astype("<i8")
        data += (
            struct.pack("<Q", len(name))
            + name.encode()
            + struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 0, 64, 1)
        )
        data += struct.pack("<qq", len(values), values.nbytes) + values.tobytes()
    return data


def test_our_own_tensors_are_read_as_theirs(tmp_path):
    (tmp_path / "x.dgl").write_bytes(tensors_file({"a": np.arange(3), "b": np.zeros(0)}))
    assert {name: array.tolist() for name, array in read_tensors(tmp_path / "x.dgl").items()} == {
        "a": [0, 1, 2],
        "b": [],
    }


@pytest.mark.parametrize("name", ["node_feat.dgl", "graph.dgl"])
def test_a_file_cut_anywhere_is_one_line(tmp_path, name):
    data = (ACADEMIC.parent / "part0" / name).read_bytes()
    read = read_graph if name == "graph.dgl" else read_tensors
    path = tmp_path / name
    for size in range(0, len(data), 7 if len(data) < 1000 else 61):
        if name == "graph.dgl" and size > len(data) - 100:
            break  # the index of graphs at the end is not needed
        path.write_bytes(data[:size])
        with pytest.raises(InputError) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def in_json(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def breakage(folder: Path) -> None:
        content = json.loads((folder / "academic.json").read_text())
        change(content)
        (folder / "academic.json").write_text(json.dumps(content))

    return breakage


def graphbolt(content: dict) -> None:
    for part in ("part-0", "part-1"):
        content[part] = {"part_graph_graphbolt": f"{part}/fused_csc_sampling_graph.pt"} | content[part]
        del content[part]["part_graph"]


def replaced(name: str, offset: int, value: bytes) -> Callable[[Path], None]:
    def breakage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[offset : offset + len(value)] = value
        (folder / name).write_bytes(data)

    return breakage


BROKEN = [
    ("GraphBolt", in_json(graphbolt),
     r"part 0 is a GraphBolt graph \(part-0/fused_csc_sampling_graph\.pt\), a pickle that only torch can open"),
    ("node map in a file", in_json(lambda c: c.update(node_map="node_map.npy")), "keeps its node map in a file"),
    ("old edge types", in_json(lambda c: c.update(etypes={"writes": 0, "cites": 1, "rev_writes": 2, "of": 3})),
     "edge type 'writes' is not written source:name:target"),
    ("no parts", in_json(lambda c: c.pop("part-1")), "entry missing or wrong: 'part-1'"),
    ("overlapping ranges", in_json(lambda c: c["node_map"]["author"][1].__setitem__(0, 3)),
     "node_map of 'author' in part 1 is 3 to 18; need a start of 15"),
    ("missing graph", lambda f: (f / "part1" / "graph.dgl").unlink(), r"graph\.dgl is missing"),
    ("missing features", lambda f: (f / "part1" / "node_feat.dgl").unlink(), r"node_feat\.dgl is missing"),
    ("a pickle", lambda f: (f / "part1" / "graph.dgl").write_bytes(b"\x80\x04\x95" + bytes(100)),
     r"graph\.dgl is not a file of DGL's save_graphs: [0-9A-F]{16} at byte 0"),
    ("features of other nodes", lambda f: shutil.copy(f / "part0" / "node_feat.dgl", f / "part1"),
     "author/feat has 5 rows; part 1 owns 3"),
    ("graph of the other part", lambda f: shutil.copy(f / "part0" / "graph.dgl", f / "part1"), "edges of|inner edge"),
    ("an old version", replaced("part0/graph.dgl", 8, struct.pack("<Q", 1)), "is of version 1 and graph type 2"),
    ("bfloat16", replaced("part0/node_feat.dgl", 60 + len("paper/val_mask"), b"\x04\x10"), "array of type 4"),
]  # fmt: skip


@pytest.mark.parametrize(("breakage", "expected"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_cannot_be_read_is_one_line(tmp_path, breakage, expected):
    folder = tmp_path / "distdgl"
    shutil.copytree(ACADEMIC.parent, folder)
    breakage(folder)
    with pytest.raises(InputError, match=expected) as caught:
        read_distdgl(folder / "academic.json")
    assert "\n" not in str(caught.value)


def test_requests_that_do_not_fit(tmp_path):
    with pytest.raises(InputError, match="has 2 parts; there is no part 2"):
        load_distdgl_part(ACADEMIC, 2)
    with pytest.raises(InputError, match="target 'author' has no labels; labelled: paper"):
        read_distdgl(ACADEMIC, target="author")
    with pytest.raises(InputError, match="no path is given"):
        read_distdgl(None)
    with pytest.raises(InputError, match="is no file; need the JSON file of a partition"):
        read_distdgl(tmp_path)
    assert is_distdgl(ACADEMIC)
    (tmp_path / "other.json").write_text("[]")
    assert not is_distdgl(tmp_path / "other.json")


def test_both_ways_to_read_a_graph_agree(numbers):
    graph, _ = read_distdgl(ACADEMIC)
    again, _ = read_distdgl(str(ACADEMIC), target="paper")
    assert same_graph(graph, again)
