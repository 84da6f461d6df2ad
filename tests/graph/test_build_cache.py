"""The cache of built semantic graphs: hits equal builds, damage is noticed, contents are the key."""

import json
from pathlib import Path

import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.graph import semantic_graph_build
from jhgnn.graph.build_cache import cache_key
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.graph.semantic_graph_build import build_semantic_graphs


def random_graph(seed: int = 0, names: tuple[str, str, str] = ("paper", "author", "subject")) -> HeteroGraph:
    rng = np.random.default_rng(seed)
    paper, author, subject = names
    return HeteroGraph.from_arrays(
        num_nodes={paper: 40, author: 30, subject: 5},
        edges={
            (paper, "has", author): (rng.integers(0, 40, 90), rng.integers(0, 30, 90)),
            (paper, "of", subject): (rng.integers(0, 40, 40), rng.integers(0, 5, 40)),
        },
    ).with_reverse_relations()


def assert_same(one: SemanticGraph, other: SemanticGraph) -> None:
    assert (one.num_sources, one.num_targets, one.name) == (other.num_sources, other.num_targets, other.name)
    for direction in ("incoming", "outgoing"):
        for field in ("indptr", "indices"):
            a, b = (getattr(getattr(graph, direction), field) for graph in (one, other))
            assert a.dtype == b.dtype == np.int32
            np.testing.assert_array_equal(a, b)


def build(graph: HeteroGraph, cache_dir: Path | None) -> dict[str, SemanticGraph]:
    return build_semantic_graphs(
        graph, [graph.schema.metapath(text) for text in ("PAP", "PAPSP", "PS")], cache_dir=cache_dir
    )


@pytest.fixture
def no_building(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("built although it was cached")

    monkeypatch.setattr(semantic_graph_build, "_build", refuse)


def test_a_hit_equals_a_build(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first = build(random_graph(), tmp_path / "cache")
    request.getfixturevalue("no_building")
    again = build(random_graph(), tmp_path / "cache")
    for name, graph in first.items():
        assert_same(again[name], graph)
    assert again["PAP"].incoming is again["PAP"].outgoing  # symmetric: stored once
    assert again["PAPSP"].incoming.indices.flags.writeable is False
    again["PAPSP"].place(("coo", "adjacency"))  # a memory map goes to a device like any array
    assert not list((tmp_path / "cache").glob(".*")), "temporary folders are left"


@pytest.mark.parametrize("damage", ["flip", "truncate", "missing", "no entry", "bad json", "other format"])
def test_damage_is_noticed_and_built_anew(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    graph = random_graph()
    expected = build(graph, tmp_path)
    folder = tmp_path / cache_key(graph, graph.schema.metapath("PAPSP"))
    victim, entry = folder / "outgoing_indices.npy", folder / "entry.json"
    content = bytearray(victim.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
        victim.write_bytes(content)
    elif damage == "truncate":
        victim.write_bytes(content[:-8])
    elif damage == "missing":
        victim.unlink()
    elif damage == "no entry":
        entry.unlink()
    elif damage == "bad json":
        entry.write_text("{")
    else:
        entry.write_text(json.dumps(json.loads(entry.read_text()) | {"format": 0}))
    assert_same(build(graph, tmp_path)["PAPSP"], expected["PAPSP"])
    assert "is damaged" in caplog.text
    assert victim.stat().st_size == len(content)
    caplog.clear()
    assert_same(build(graph, tmp_path)["PAPSP"], expected["PAPSP"])
    assert not caplog.text


def test_contents_are_the_key() -> None:
    def key(graph: HeteroGraph, text: str) -> str:
        return cache_key(graph, graph.schema.metapath(text))

    graph = random_graph()
    assert key(graph, "PAP") == key(random_graph(names=("picture", "actor", "style")), "PAP")
    others = [key(graph, "PSP"), key(graph, "PAPAP"), key(graph, "APA"), key(random_graph(1), "PAP")]
    assert len({key(graph, "PAP"), *others}) == 5


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cache folder '.*file/cache' cannot be written"):
        build(random_graph(), tmp_path / "file" / "cache")


def test_an_empty_graph_is_cached_too(tmp_path: Path) -> None:
    none = np.zeros(0, np.int64)
    graph = HeteroGraph.from_arrays(
        num_nodes={"paper": 3, "author": 2, "subject": 1},
        edges={("paper", "has", "author"): (none, none), ("paper", "of", "subject"): (none, none)},
    ).with_reverse_relations()
    first, again = build(graph, tmp_path), build(graph, tmp_path)
    assert first["PAP"].num_edges == 0
    assert_same(again["PAP"], first["PAP"])
