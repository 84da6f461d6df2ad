"""`python -m jhgnn.data describe`: layouts found, tables complete, one-line errors with exit code 2."""

import io
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import sparse

from jhgnn.data import load
from jhgnn.data.__main__ import main
from jhgnn.data.describe import describe, render
from jhgnn.data.detect import detect_format
from jhgnn.errors import InputError
from jhgnn.graph.hetero_graph import HeteroGraph
from tests.data import layouts
from tests.data.tables import shop


def small_graph() -> HeteroGraph:
    """3 papers, 2 authors (the second is isolated), 4 terms."""
    return HeteroGraph.from_arrays(
        name="small",
        num_nodes={"paper": 3, "author": 2, "term": 4},
        edges={
            ("paper", "by", "author"): (np.array([0, 1, 1]), np.array([0, 0, 0])),
            ("paper", "has", "term"): (np.array([0, 1]), np.array([0, 1])),
        },
        features={"paper": np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), "term": sparse.eye_array(4)},
        target="paper",
        labels=np.array([0, 1, -1]),
        splits={"train": np.array([0]), "test": np.array([1])},
    ).with_reverse_relations()


def text_of(graph: HeteroGraph, metapaths: list[str] | None = None, limit: int = 2**30, terminal: bool = False) -> str:
    file = io.StringIO()
    environment = {"TERM": "xterm"}  # a dumb terminal is 80 columns wide, whatever width is asked for
    console = Console(file=file, force_terminal=terminal, width=200, no_color=True, _environ=environment)
    render(describe(graph, metapaths, memory_limit_bytes=limit), console)
    return file.getvalue()


def row(text: str, first: str) -> list[str]:
    """The cells of the row that begins with this cell."""
    (line,) = [line for line in text.splitlines() if re.match(rf"\s*{re.escape(first)}\s\s", line)]
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("terminal", [False, True])
def test_every_fact_is_there(terminal: bool) -> None:
    text = text_of(small_graph(), terminal=terminal)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert row(text, "paper (target)") == ["paper (target)", "3", "dense", "2", "50 %", "24 bytes"]
    assert row(text, "author") == ["author", "2", "none"]
    assert row(text, "term")[:5] == ["term", "4", "one-hot", "4", "25 %"]
    assert row(text, "paper:by:author") == ["paper:by:author", "3", "1.50", "3", "1.00", "2", "50 %"]
    assert row(text, "author:rev_by:paper") == ["author:rev_by:paper", "3", "1.00", "2", "1.50", "3", "50 %"]
    assert "9 nodes of 3 types" in text
    assert "single-label, 2 classes, 2 of 3 labelled" in text
    assert row(text, "train") == ["train", "1", "33.3 %"]
    # The parallel edge counts once; paper 2 has no author; a paper reaches itself.
    assert row(text, "PAP")[:7] == ["PAP", "4", "exact", "1.33", "44.4 %", "48 bytes", "yes"]
    assert row(text, "PTP")[1:4] == ["2", "exact", "0.67"]


def test_given_metapaths_and_the_limit() -> None:
    text = text_of(small_graph(), ["PA", "PAPTP"], limit=20)
    assert "metapaths, as given" in text
    assert row(text, "PA")[1:7] == ["2", "exact", "1.00", "33.3 %", "24 bytes", "no"]
    assert row(text, "PAPTP")[1] == "about 4"  # 20 bytes do not hold a sub-product: rows are sampled
    assert row(text_of(small_graph(), ["PAPTP"]), "PAPTP")[1:3] == ["4", "exact"]
    with pytest.raises(InputError, match="does not join"):
        text_of(small_graph(), ["AT"])


def test_graphs_without_labels_target_features_or_edges() -> None:
    graph = HeteroGraph.from_arrays(num_nodes={"a": 0}, edges={("a", "to", "a"): (np.zeros(0, int), np.zeros(0, int))})
    text = text_of(graph)
    assert "labels: none" in text
    assert "the graph has no target type" in text
    assert row(text, "a:to:a") == ["a:to:a", "0", "0.00", "0", "0.00", "0", "0 %"]
    one_way = HeteroGraph.from_arrays(
        num_nodes={"a": 2, "b": 2}, edges={("a", "to", "b"): (np.array([0]), np.array([1]))}, target="a"
    )
    assert "metapaths: no metapath leads from 'a' back to itself" in text_of(one_way)


def test_multi_label_counts() -> None:
    graph = HeteroGraph.from_arrays(
        num_nodes={"a": 3},
        edges={("a", "to", "a"): (np.array([0]), np.array([1]))},
        target="a",
        labels=np.array([[1, 1], [0, 1], [0, 0]]),
    )
    text = text_of(graph)
    assert "multi-label, 1.50 classes a labelled node, 2 classes, 2 of 3 labelled" in text
    assert row(text, "1") == ["1", "2", "100 %"]


@pytest.mark.parametrize(
    ("folder", "layout"),
    [
        ("acm_gtn", "arrays"),
        ("acm_gtn/acm_gtn.npz", "arrays"),
        ("acm_han3025", "acm_mat"),
        ("acm_han3025/ACM3025.mat", "acm_mat"),
        ("hgb_acm", "hgb"),
        ("hgb_acm/ACM.zip", "hgb"),
        ("magnn_dblp", "magnn"),
        ("rdf_aifb", "rdf"),
        ("kg_fb15k237", "triples"),
        ("lastfm_magnn", "lastfm"),
    ],
)
def test_layouts_are_detected(data_root: Path, folder: str, layout: str) -> None:
    assert detect_format(str(data_root / folder)) == layout


def test_layouts_without_real_data_are_detected(tmp_path: Path) -> None:
    assert detect_format("imdb") == "synthetic"
    mag = tmp_path / "mag" / "raw" / "num-node-dict.csv.gz"
    mag.parent.mkdir(parents=True)
    mag.touch()
    assert detect_format(str(tmp_path / "mag")) == "ogb_mag"
    (tmp_path / "mag" / "schema.json").touch()
    assert detect_format(str(tmp_path / "mag")) == "jhgnn"


def test_a_link_split_is_shown(tmp_path: Path) -> None:
    text = text_of(load("lastfm", layouts.write(layouts.lastfm(), tmp_path)))
    assert "links to predict" in text
    assert row(text, "train") == ["train", "3", "60 %"]


@pytest.mark.slow
def test_a_real_graph_through_the_command_line(data_root: Path) -> None:
    """Plain text in a pipe, all of Table 3's PAP and PSP counts."""
    done = subprocess.run(
        [sys.executable, "-m", "jhgnn.data", "describe", str(data_root / "acm_gtn")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert row(done.stdout, "PAP")[1:3] == ["29,436", "exact"]
    assert row(done.stdout, "PSP")[1:3] == ["2,200,581", "exact"]
    assert "\x1b" not in done.stdout
    assert not done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe"], "command line: the following arguments are required: PATH"),
        (["describe", "PLACE/none"], "does not exist; need a folder, file or zip, or a preset: acm"),
        (["describe", "PLACE/empty"], "holds no known layout (found: nothing); name it with --format"),
        (["describe", "PLACE/broken.zip"], "is not a complete zip"),
        (["describe", "imdb", "--format", "csv"], "invalid choice: 'csv'"),
        (["describe", "imdb", "--metapaths", "MXM"], "neither a node type"),
        (["describe", "imdb", "--memory-limit-gib", "0"], "must be above 0"),
        (["describe", "imdb", "--memory-limit-gib", "much"], "invalid float value: 'much'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with zipfile.ZipFile(tmp_path / "broken.zip", "w") as archive:
        archive.writestr("node.dat", "x" * 1000)
    whole = (tmp_path / "broken.zip").read_bytes()
    (tmp_path / "broken.zip").write_bytes(whole[:-30])
    assert main([argument.replace("PLACE", str(tmp_path)) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out.strip() or "metapaths" not in captured.out


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["describe", "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--format", "--target", "--metapaths", "--scale", "--seed", "--memory-limit-gib", "PATH"):
        assert option in shown


def test_what_tables_add_is_shown(tmp_path, capsys):
    """Keys, times, what features mean, and names of classes; the schema alone, or its folder."""
    folder = shop.write(tmp_path / "shop", ".csv")
    assert detect_format(str(folder)) == detect_format(str(folder / "tables.toml")) == "tables"
    assert main(["describe", str(folder)]) == 0
    text = capsys.readouterr().out
    assert row(text, "customer country") == ["customer country", "category", "2", "country=DE, country=FR"]
    assert "product   integers  12, 10, 11" in text
    assert row(text, "b") == ["b", "2", "50 %"]
    assert "2019-01-01T00:00:00.000005  2021-05-03\n" in text
