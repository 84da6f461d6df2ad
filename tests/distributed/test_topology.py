"""What every process reads of a folder of parts, and the rows that it reads of its own parts alone."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from jhgnn import partition
from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.part_rows import PartRows
from jhgnn.distributed.placement import Placement
from jhgnn.distributed.topology import read_owners, read_topology
from jhgnn.distributed.writing import write_partition
from jhgnn.errors import InputError
from jhgnn.graph.feature_columns import FeatureColumn
from jhgnn.graph.sparse_rows import SparseRows
from tests.distributed.graphs import same_graph
from tests.models.heterographs import academic

PARTS = 3


@pytest.fixture(scope="module")
def graph():
    """Papers have sparse features, authors dense ones with columns that mean something, subjects none."""
    return dataclasses.replace(academic(), columns={"author": (FeatureColumn("about", "vector", 5, {"seen": 1}),)})


@pytest.fixture(scope="module")
def assignment(graph):
    return random_assignment(graph, PARTS, seed=1)


@pytest.fixture(scope="module")
def folder(graph, assignment, tmp_path_factory) -> Path:
    return write_partition(graph, assignment, tmp_path_factory.mktemp("parts") / "three")


@pytest.fixture
def copied(folder, tmp_path) -> Path:
    return shutil.copytree(folder, tmp_path / "copied")


def test_the_topology_is_the_graph_without_rows_and_needs_no_part(graph, assignment, copied):
    for number in range(PARTS):
        shutil.rmtree(copied / f"part{number}")
    found = read_topology(copied, target="paper")
    assert same_graph(dataclasses.replace(found, features=graph.features), graph)
    assert found.columns == graph.columns
    assert all(isinstance(edges.senders, np.memmap) for edges in found.edges.values())
    assert {name: rows.shape for name, rows in found.features.items()} == {"paper": (40, 12), "author": (25, 5)}
    owners = read_owners(copied)
    for name, parts in assignment.parts.items():
        np.testing.assert_array_equal(owners.parts[name], parts)


@pytest.mark.parametrize("places", [range(PARTS), range(1, 2)])
@pytest.mark.parametrize("sparse", [True, False])
def test_rows_of_own_parts_are_those_cut_from_the_whole_matrix(graph, assignment, copied, places, sparse):
    for number in set(range(PARTS)) - set(places):
        shutil.rmtree(copied / f"part{number}")
    placement = Placement.of(assignment)
    for name, rows in read_topology(copied).features.items():
        assert isinstance(rows, PartRows)
        matrix = graph.features[name]
        if rows.sparse:
            rows = dataclasses.replace(rows, sparse=sparse)
            matrix = SparseRows.from_scipy(matrix) if sparse else matrix.toarray()
        expected = jax.tree.map(lambda leaf, name=name: placement.cut(name, leaf, places), matrix)
        jax.tree.map(np.testing.assert_array_equal, rows.cut(placement.rows[name], places), expected)


def test_every_place_keeps_the_nodes_that_it_owns(assignment):
    placement = Placement.of(assignment)
    for name, parts in assignment.parts.items():
        for place, ids in enumerate(placement.ids(name, range(PARTS))):
            assert ids[ids >= 0].tolist() == np.flatnonzero(parts == place).tolist()


def break_json(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda folder: break_json(folder / "partition.json", topology=None), "was written without the folder"),
        (lambda folder: shutil.rmtree(folder / "topology"), "is no whole partition"),
        (lambda folder: (folder / "topology" / "relation0_senders.npy").unlink(), "is missing, but files.json names"),
        (lambda folder: flip_last_byte(folder / "topology" / "relation1_senders.npy"), "the file is damaged, copy it"),
        (lambda folder: flip_last_byte(folder / "topology" / "type2_owners.npy"), "the file is damaged, copy it"),
        (lambda folder: break_json(folder / "topology" / "files.json", identity="x"), "is of another partitioning"),
        (lambda folder: break_json(folder / "topology" / "files.json", columns={}), "files.json has the checksum"),
    ],
)
def test_a_broken_topology_is_one_line(copied, broken, message, capsys):
    broken(copied)
    with pytest.raises(InputError, match=message) as caught:
        read_topology(copied)
    assert "\n" not in str(caught.value)
    if "without" not in message:
        assert partition.main(["--check", str(copied)]) == 2
        assert message in capsys.readouterr().err


def test_a_damaged_part_is_found_when_its_rows_are_read(copied):
    flip_last_byte(copied / "part1" / "type1_features.npy")
    rows = read_topology(copied).features["author"]
    assert rows.cut(25, range(1)).shape == (1, 25, 5)
    with pytest.raises(InputError, match="the file is damaged, copy it again"):
        rows.cut(25, range(1, 2))
