"""DGL's chunked graph format, in each of its file formats; broken folders are one line each."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jhgnn.distributed.dgl_chunks import is_chunked, read_dgl_chunks
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.distributed.graphs import same_graph

RNG = np.random.default_rng(0)
WRITES = np.stack([RNG.integers(0, 5, 9), RNG.integers(0, 7, 9)], axis=1)
CITES = np.stack([RNG.integers(0, 7, 6), RNG.integers(0, 7, 6)], axis=1)
FEATURES = RNG.normal(size=(7, 3)).astype(np.float32)
LABELS = np.array([0, 1, np.nan, 1, 0, 1, 0])
TRAIN = np.array([1, 1, 0, 0, 0, 0, 0], np.uint8)
WEIGHTS = RNG.random(9).astype(np.float32)


def expected() -> HeteroGraph:
    return HeteroGraph.from_arrays(
        name="tiny",
        num_nodes={"author": 5, "paper": 7},
        edges={("author", "writes", "paper"): (*WRITES.T, WEIGHTS), ("paper", "cites", "paper"): tuple(CITES.T)},
        features={"paper": FEATURES},
        target="paper",
        labels=np.where(np.isnan(LABELS), -1, LABELS),
        splits={"train": np.array([0, 1])},
    )


def write_csv(path: Path, array: np.ndarray) -> None:
    np.savetxt(path, array, fmt="%d" if array.dtype.kind in "iu" else "%.9g", delimiter=" ")


def write_parquet(path: Path, array: np.ndarray) -> None:
    """As DGL's own tools do: columns, and the shape beside them."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = array.reshape(len(array), -1)
    table = pyarrow.table({str(number): column for number, column in enumerate(columns.T)})
    parquet.write_table(table.replace_schema_metadata({"shape": str(array.shape)}), path)


def write_vectors(path: Path, array: np.ndarray) -> None:
    """As Spark does: one column of vectors."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"vector": array.reshape(len(array), -1).tolist()}), path)


WRITERS = {"csv": write_csv, "numpy": np.save, "parquet": write_parquet, "vectors": write_vectors}
SUFFIX = {"csv": "txt", "numpy": "npy", "parquet": "parquet", "vectors": "parquet"}


def chunked(folder: Path, layout: str, *, per_type: bool = False) -> Path:
    """Writes the tiny graph in two chunks an array."""
    folder.mkdir()
    described = {"csv": {"name": "csv", "delimiter": " "}, "numpy": {"name": "numpy"}}.get(layout, {"name": "parquet"})

    def chunks(name: str, array: np.ndarray) -> dict:
        paths = [f"{name}-{number}.{SUFFIX[layout]}" for number in (0, 1)]
        for path, chunk in zip(paths, np.array_split(array, 2), strict=True):
            WRITERS[layout](folder / path, chunk)
        return {"format": described, "data": [paths[0], str(folder / paths[1])]}  # relative and absolute

    metadata: dict = {
        "graph_name": "tiny",
        "node_type": ["author", "paper"],
        "num_nodes_per_chunk": [[3, 2], [4, 3]],
        "edge_type": ["author:writes:paper", "paper:cites:paper"],
        "num_edges_per_chunk": [[5, 4], [3, 3]],
        "edges": {"author:writes:paper": chunks("writes", WRITES), "paper:cites:paper": chunks("cites", CITES)},
        "node_data": {
            "paper": {
                "feat": chunks("feat", FEATURES),
                "label": chunks("label", LABELS),
                "train_mask": chunks("train", TRAIN),
                "year": chunks("year", np.arange(7)),
            }
        },
        "edge_data": {"author:writes:paper": {"weight": chunks("weight", WEIGHTS)}},
    }
    if per_type:  # as DGL's later tools have it
        del metadata["num_nodes_per_chunk"], metadata["num_edges_per_chunk"]
        metadata |= {"num_nodes_per_type": [5, 7], "num_edges_per_type": [9, 6]}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


@pytest.mark.parametrize("layout", WRITERS)
def test_every_file_format_gives_the_graph(tmp_path, layout):
    folder = chunked(tmp_path / "chunks", layout)
    assert is_chunked(folder)
    assert same_graph(read_dgl_chunks(folder, progress=False), expected())


def test_counts_by_type(tmp_path):
    assert same_graph(read_dgl_chunks(chunked(tmp_path / "chunks", "numpy", per_type=True)), expected())


def in_json(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def breakage(folder: Path) -> None:
        content = json.loads((folder / "metadata.json").read_text())
        change(content)
        (folder / "metadata.json").write_text(json.dumps(content))

    return breakage


BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("no metadata", lambda f: (f / "metadata.json").unlink(), r"metadata\.json is missing: .* holds no chunked graph"),
    ("no edge types", in_json(lambda c: c.pop("edge_type")), "entry missing or wrong: 'edge_type'"),
    ("counts of a type too few", in_json(lambda c: c["num_nodes_per_chunk"].pop()), "has 1 entries for 2 types"),
    ("an edge type of one word", in_json(lambda c: (c["edge_type"].__setitem__(1, "cites"),
     c["edges"].update(cites=c["edges"]["paper:cites:paper"]))), "edge type 'cites' is not written source:name:target"),
    ("a chunk is missing", lambda f: (f / "cites-1.npy").unlink(), r"cites-1\.npy is missing, .* for edges of paper"),
    ("a chunk is a pickle", lambda f: (f / "label-0.npy").write_bytes(b"\x80\x04."), r"label-0\.npy is a pickle"),
    ("a chunk is cut short", lambda f: (f / "feat-0.npy").write_bytes((f / "feat-0.npy").read_bytes()[:-4]),
     r"feat-0\.npy is damaged or truncated"),
    ("another count", in_json(lambda c: c["num_edges_per_chunk"][1].__setitem__(0, 9)), r"\(6, 2\); need \(12, 2\)"),
    ("rows of another type", in_json(lambda c: c["node_data"]["paper"].update(feat=c["edge_data"]["author:writes:paper"]
     ["weight"])), "paper/feat has 9 rows; the type has 7 nodes"),
    ("an id out of range", lambda f: np.save(f / "cites-0.npy", np.full((3, 2), 7)), "id 7 at row 0 is out of range"),
    ("ids of floats", lambda f: np.save(f / "cites-0.npy", np.full((3, 2), 0.5)), "float64 and not whole numbers"),
    ("half a label", lambda f: np.save(f / "label-0.npy", np.full(4, 0.5)), r"label 0\.5 at row 0 is not a whole"),
    ("an unknown format", in_json(lambda c: c["edges"]["paper:cites:paper"].update(format={"name": "hdf5"})),
     "is of the format 'hdf5'; need csv, numpy, parquet"),
    ("no chunks", in_json(lambda c: c["edges"]["paper:cites:paper"].update(data=[])), "edges of .* has no chunks"),
    ("widths differ", lambda f: np.save(f / "feat-0.npy", np.zeros((4, 2), np.float32)), "have rows of shapes"),
    ("data of no type", in_json(lambda c: c["node_data"].update(venue={})), "node_data of 'venue'; node types are"),
]  # fmt: skip


@pytest.mark.parametrize(("breakage", "expected_line"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken_folders_are_one_line(tmp_path, breakage, expected_line):
    folder = chunked(tmp_path / "chunks", "numpy")
    breakage(folder)
    with pytest.raises(InputError, match=expected_line) as caught:
        read_dgl_chunks(folder, progress=False)
    assert "\n" not in str(caught.value)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    folder = chunked(tmp_path / "chunks", "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"writes-0\.parquet is a Parquet file, which needs pyarrow"):
        read_dgl_chunks(folder, progress=False)


def test_damaged_parquet(tmp_path):
    folder = chunked(tmp_path / "chunks", "parquet")
    (folder / "feat-0.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(InputError, match=r"feat-0\.parquet is not a readable Parquet file"):
        read_dgl_chunks(folder, progress=False)


def test_paths_that_are_nothing(tmp_path):
    with pytest.raises(InputError, match="no path is given"):
        read_dgl_chunks(None)
    with pytest.raises(InputError, match="does not exist"):
        read_dgl_chunks(tmp_path / "nowhere")
