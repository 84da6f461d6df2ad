"""Folders of parts: what goes in comes out, a part alone is enough, and broken folders are one line each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.feature_store import PartFeatureStore
from jhgnn.distributed.manifest import read_manifest, to_json
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.part import Part, check_partition, load_part, merge_parts
from jhgnn.distributed.writing import write_partition
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.distributed.graphs import graphs_in_parts, random_graph, same_graph

Breakage = Callable[[Path], object]


def parts_of(graph: HeteroGraph, assignment: Assignment, folder: Path) -> list[Part]:
    shutil.rmtree(folder, ignore_errors=True)
    write_partition(graph, assignment, folder)
    return [load_part(folder, number) for number in range(assignment.num_parts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = random_graph(4)
    return write_partition(graph, random_assignment(graph, 3), tmp_path_factory.mktemp("parts") / "whole")


@settings(max_examples=12)  # each writes a folder and waits for the disk
@given(graphs_in_parts())
def test_parts_hold_the_graph(tmp_path_factory, case):
    graph, assignment = case
    folder = tmp_path_factory.getbasetemp() / "drawn"
    parts = parts_of(graph, assignment, folder)
    assert same_graph(merge_parts(parts, original_ids=True), graph)
    whole = merge_parts(parts)
    for part in parts:
        owns_a_range(part, assignment)
        knows_its_halo(part, whole)
        has_its_in_edges(part, whole)
    manifest = read_manifest(folder)
    assert to_json(manifest) == json.loads((folder / "partition.json").read_text())


def owns_a_range(part: Part, assignment: Assignment) -> None:
    for node_type, owners in assignment.parts.items():
        owned = part.owned(node_type)
        assert len(owned) == assignment.counts(node_type)[part.number]
        assert (owners[part.original_ids[node_type]] == part.number).all()
        assert (part.owners(node_type, np.arange(owned.start, owned.stop)) == part.number).all()
        assert part.owners(node_type, np.array([-1])).tolist() == [-1]


def knows_its_halo(part: Part, whole: HeteroGraph) -> None:
    for node_type in whole.num_nodes:
        senders = {
            int(sender)
            for relation, edges in whole.edges.items()
            if relation.source == node_type
            for sender, receiver in zip(edges.senders, edges.receivers, strict=True)
            if receiver in part.owned(relation.target) and sender not in part.owned(node_type)
        }
        assert part.halo.get(node_type, np.zeros(0)).tolist() == sorted(senders)


def has_its_in_edges(part: Part, whole: HeteroGraph) -> None:
    for relation, edges in whole.edges.items():
        owned, own = part.owned(relation.target), part.edges[relation]
        low, high = edges.indptr[owned.start], edges.indptr[owned.stop]
        assert own.senders.tolist() == edges.senders[low:high].tolist()
        assert own.indptr.tolist() == (edges.indptr[owned.start : owned.stop + 1] - low).tolist()


def test_a_process_needs_its_own_part_alone(folder, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(folder, alone)
    for other in (0, 2):
        shutil.rmtree(alone / f"part{other}")
    part = load_part(alone, 1)
    assert part.number == 1
    assert isinstance(part.features["author"].base, np.memmap) or isinstance(part.features["author"], np.memmap)
    with pytest.raises(InputError, match=r"part2 is missing, but partition\.json counts 3 parts"):
        load_part(alone, 2)


def test_the_same_partition_twice_has_the_same_bytes(folder, tmp_path):
    graph = random_graph(4)
    again = write_partition(graph, random_assignment(graph, 3), tmp_path / "again")
    for path in sorted(folder.rglob("*.*")):
        assert path.read_bytes() == (again / path.relative_to(folder)).read_bytes(), path


@pytest.mark.parametrize("seed", [4, 5])
def test_the_store_gathers_owned_rows(tmp_path, seed):
    graph = random_graph(seed)
    parts = parts_of(graph, random_assignment(graph, 2), tmp_path / "parts")
    for part in parts:
        store = PartFeatureStore(part)
        for node_type, width in store.widths.items():
            owned = part.owned(node_type)
            ids = np.array([owned.start, -1, owned.stop - 1, owned.start], np.int32)
            rows = store.gather(node_type, ids)
            assert rows.dtype == np.float32
            assert rows.shape == (4, width)
            features = graph.features[node_type]
            for row, new in zip(rows, ids, strict=True):
                expected = features[[part.original_ids[node_type][new - owned.start]]] if new >= 0 else np.zeros(width)
                expected = expected.toarray() if hasattr(expected, "toarray") else expected
                assert row.tolist() == np.ravel(expected).tolist()
        table = np.array([[owned.start, -1], [-1, owned.start]])
        assert np.array_equal(store.gather(node_type, table)[:, 0], store.gather(node_type, table[:, 0]))
        assert set(store.node_types) == {"paper", "author"}
        assert store.gather("paper", np.zeros(0, np.int32)).shape == (0, store.widths["paper"])
        assert store.row_bytes("author") == 8
    with pytest.raises(InputError, match=r"author 0 is not owned by part 1, which owns \d+ to \d+; ask its owner"):
        PartFeatureStore(parts[1]).gather("author", np.array([0]))
    with pytest.raises(InputError, match="no features of type 'venue'; types with features: paper, author"):
        PartFeatureStore(parts[1]).gather("venue", np.array([0]))


def in_json(file: str, change: Callable[[dict], object]) -> Breakage:
    def breakage(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        change(content)
        (folder / file).write_text(json.dumps(content))

    return breakage


def flipped(name: str) -> Breakage:
    def breakage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)

    return breakage


def cut(name: str) -> Breakage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-4])


def other_partitioning(folder: Path) -> None:
    """Part 1 comes from the same graph, cut with another seed."""
    graph = random_graph(4)
    other = write_partition(graph, random_assignment(graph, 3, seed=1), folder.with_name("other"))
    shutil.rmtree(folder / "part1")
    (other / "part1").rename(folder / "part1")


BROKEN: list[tuple[str, Breakage, str]] = [
    ("no manifest", lambda f: (f / "partition.json").unlink(), r"partition\.json is missing: .* was cut short"),
    ("manifest is no JSON", cut("partition.json"), r"partition\.json cannot be read"),
    ("another format", in_json("partition.json", lambda c: c.update(format="x")), "is not of format 'jhgnn-partition'"),
    ("a later version", in_json("partition.json", lambda c: c.update(version=2)), "version 2; this release reads"),
    ("no node map", in_json("partition.json", lambda c: c.pop("node_map")), "entry missing or wrong: 'node_map'"),
    ("ranges overlap", in_json("partition.json", lambda c: c["node_map"]["author"][1].__setitem__(0, 0)),
     r"node_map of 'author' in part 1 is 0 to \d+; need a start of \d+"),
    ("a range too few", in_json("partition.json", lambda c: c["node_map"]["author"].pop()), "2 ranges for 3 parts"),
    ("a part is missing", lambda f: shutil.rmtree(f / "part1"), "part1 is missing, but .* counts 3 parts"),
    ("no part.json", lambda f: (f / "part1" / "part.json").unlink(), r"part\.json is missing: .* was cut short"),
    ("part of another partitioning", other_partitioning,
     r"part1 is a part of another partitioning \(\w+\) than partition\.json beside it \(\w+\)"),
    ("parts swapped", lambda f: ((f / "part1").rename(f / "x"), (f / "part0").rename(f / "part1"),
     (f / "x").rename(f / "part0")), "part0 holds part 1, not part 0"),
    ("part.json changed", in_json("part1/part.json", lambda c: c["arrays"]["labels"].update(crc32=1)),
     r"part\.json has the checksum \w+, but partition\.json has \w+"),
    ("an array is missing", lambda f: (f / "part1" / "labels.npy").unlink(), r"labels\.npy is missing"),
    ("an array is cut short", cut("part1/type0_features.npy"), r"type0_features\.npy has \d+ bytes; \d+ were written"),
    ("a bit is wrong", flipped("part1/relation0_senders.npy"), r"senders\.npy has the checksum \w+; \w+ was written"),
    ("not a folder", lambda f: (shutil.rmtree(f), f.write_text("")), "is not a folder; need a partition"),
    ("nothing there", shutil.rmtree, "does not exist; need a partition"),
]  # fmt: skip


@pytest.mark.parametrize(("breakage", "expected"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken_folders_are_one_line(folder, tmp_path, breakage, expected):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    check_partition(broken)
    breakage(broken)
    with pytest.raises(InputError, match=expected) as caught:
        check_partition(broken)
    assert "\n" not in str(caught.value)


def test_ids_out_of_range_are_found_without_checksums(folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    path = broken / "part1" / "relation0_senders.npy"
    senders = np.load(path)
    senders[0] = 10_000
    np.save(path, senders)
    with pytest.raises(InputError, match=r"relation0_senders\.npy has 10000 at entry 0; need 0 to \d+"):
        load_part(broken, 1, verify=False)


def test_parts_that_are_not_there(folder):
    for number in (-1, 3):
        with pytest.raises(InputError, match=f"has 3 parts; there is no part {number}"):
            load_part(folder, number)
    with pytest.raises(InputError, match=r"parts \[0, 1\] of a partitioning into 3; need all of them"):
        merge_parts([load_part(folder, 0), load_part(folder, 1)])


def test_what_is_there_is_not_overwritten_by_accident(folder, tmp_path):
    graph = random_graph(4)
    target = tmp_path / "taken"
    shutil.copytree(folder, target)
    with pytest.raises(InputError, match="taken exists; choose another folder, or replace it with --overwrite"):
        write_partition(graph, random_assignment(graph, 2), target)
    write_partition(graph, random_assignment(graph, 2), target, overwrite=True)
    assert check_partition(target).num_parts == 2
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match="photos is not a partition"):
        write_partition(graph, random_assignment(graph, 2), tmp_path / "photos", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "taken"]  # nothing temporary stays


def test_assignments_that_do_not_fit(tmp_path):
    graph = random_graph(4)
    parts = dict(random_assignment(graph, 2).parts)
    short = parts | {"author": parts["author"][1:]}
    with pytest.raises(InputError, match=r"has \d+ nodes of type 'author'; the graph has \d+"):
        write_partition(graph, Assignment(2, short, "x"), tmp_path / "x")
    with pytest.raises(InputError, match="author 0 is assigned to part 2; need 0 to 1"):
        Assignment(2, parts | {"author": parts["author"] + 2}, "x")
    with pytest.raises(InputError, match="the number of parts is 0; need 1 to 4096"):
        Assignment(0, parts, "x")
