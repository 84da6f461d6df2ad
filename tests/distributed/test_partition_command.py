"""`python -m jhgnn.partition`: what it writes, what it prints before, and wrong requests in one line each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jhgnn import partition
from jhgnn.data import save_graph
from jhgnn.distributed.meta.plan import read_plan
from jhgnn.distributed.part import check_partition, load_part, merge_parts
from tests.distributed.graphs import communities, same_graph
from tests.distributed.test_dgl_chunks import chunked

DISTDGL = Path(__file__).parent / "stored" / "distdgl" / "academic.json"


def run(*arguments: object) -> int:
    return partition.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_graph(communities(), tmp_path_factory.mktemp("data") / "communities")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "metapath", "metis"])
def test_a_saved_graph_is_cut(tmp_path, saved, capsys, method):
    if method == "metis":
        pytest.importorskip("pymetis")
    assert run(saved, "--parts", 3, "--method", method, "--out", tmp_path / "parts") == 0
    shown = capsys.readouterr()
    assert f"edges cut into 3 parts by {method}" in shown.out
    assert "part 2 of 3 written" in shown.err
    manifest = check_partition(tmp_path / "parts")
    parts = [load_part(tmp_path / "parts", number) for number in range(3)]
    assert same_graph(merge_parts(parts, original_ids=True), communities())
    report = json.loads((tmp_path / "parts" / "report.json").read_text())
    assert report["nodes"]["paper"] == np.diff(manifest.offsets["paper"]).tolist()
    assert report["balance"]["targets"]["train"] <= 1.1
    assert (tmp_path / "parts" / "report.png").read_bytes()[:4] == b"\x89PNG"
    assert run("--check", tmp_path / "parts") == 0
    assert "3 parts of communities" in capsys.readouterr().out


def test_a_plan_writes_nothing(tmp_path, saved, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(saved, "--parts", 2, "--method", "random", "--plan") == 0
    assert "edges cut into 2 parts by random" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert run(saved, "--parts", 2, "--method", "random", "--plan", "--chart", "chart.svg") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["chart.svg"]


def test_a_recipe_is_read_with_its_reverses(tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[data]\npreset = "mag"\nscale = 0.002\nreverse_relations = true\n')
    assert run("--config", recipe, "--parts", 2, "--method", "random", "--out", tmp_path / "parts") == 0
    names = [str(relation) for relation in check_partition(tmp_path / "parts").schema.relations]
    assert "paper:rev_writes:author" in names


def test_a_distdgl_partition_keeps_its_parts_or_gets_others(tmp_path):
    assert run(DISTDGL, "--method", "given", "--out", tmp_path / "given") == 0
    manifest = check_partition(tmp_path / "given")
    assert json.loads((tmp_path / "given" / "partition.json").read_text())["node_map"] == json.loads(
        DISTDGL.read_text()
    )["node_map"]  # fmt: skip
    assert manifest.method == "metis"
    assert run(DISTDGL, "--parts", 3, "--method", "random", "--out", tmp_path / "random") == 0
    assert check_partition(tmp_path / "random").num_parts == 3


def test_a_chunked_graph_is_cut(tmp_path):
    folder = chunked(tmp_path / "chunks", "csv")
    assert run(folder, "--parts", 2, "--method", "random", "--out", tmp_path / "parts") == 0
    assert check_partition(tmp_path / "parts").graph_name == "tiny"


MAG = ("mag", "--data.scale", 0.005, "--data.reverse_relations", "true", "--sampling.batch_size", 64)


@pytest.mark.parametrize(
    ("model", "branch"),
    [
        (("--model.name", "rgcn", "--model.layers", 2), "paper:cites:paper / author:writes:paper"),
        (("--model.name", "han", "--sampling.fan_out", 5), "author:writes:paper / paper:rev_writes:author"),
        pytest.param(
            ("--model.name", "rgat", "--sampling.fan_out", "4,3", "--costs", "measured"),
            "author:writes:paper / self",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_relations_are_planned_by_shard(tmp_path, capsys, model, branch):
    out = tmp_path / "plan.json"
    assert run(*MAG, *model, "--method", "meta", "--parts", 2, "--plan", "--chart", tmp_path / "chart.png") == 0
    shown = capsys.readouterr().out
    for expected in (branch, "branches whole, largest first", "shard 1 computes", "max/mean", "partials", "modelled"):
        assert expected in shown
    assert [path.name for path in tmp_path.iterdir()] == ["chart.png"]
    assert run(*MAG, *model, "--method", "meta", "--parts", 2, "--out", out) == 0
    assert read_plan(out).num_shards == 2
    assert run(*MAG, *model, "--method", "meta", "--parts", 2, "--out", out) == 2
    assert "plan.json exists; choose another file, or replace it with --overwrite" in capsys.readouterr().err


WRONG = [
    ((*MAG[:3], "--method", "meta", "--parts", 2, "--plan", "--model.name", "gcn"), "'gcn' has none: name 'rgcn'"),
    ((*MAG, "--method", "meta", "--parts", 2, "--plan", "--sampling.fan_out", "5,4"), "draw one number of neighbours"),
    ((DISTDGL.parents[1] / "distdgl_csc" / "plain.json", "--method", "meta", "--parts", 2, "--plan"),
     "graph 'plain' has no training nodes"),
    ((), "--parts is missing; give the number of parts"),
    (("--parts", 0), "the number of parts is 0; need 1 to 4096"),
    (("--parts", "many"), "argument --parts: invalid int value: 'many'"),
    (("--parts", 2), "give --out FOLDER to write the parts, or --plan to see the report alone"),
    (("--parts", 2, "--plan", "--out", "x"), "give --out FOLDER to write the parts, or --plan"),
    (("--parts", 2, "--plan", "--method", "kmeans"), "argument --method: invalid choice: 'kmeans'"),
    (("--parts", 2, "--plan", "--tolerance", 0.5), "--tolerance 0.5 must be at least 1"),
    (("--parts", 2, "--plan", "--network-gbit", 0), "--network-gbit 0.0 must be above 0"),
    (("--parts", 2, "--plan", "--whole-branches"), "--whole-branches is of --method meta, not of 'metis'"),
    (("--parts", 2, "--plan", "--seed", -1), "--seed -1 must be from 0"),
    (("--parts", 2, "--plan", "--format", "hgb"), "--format is of PATH, which is not given"),
    (("--parts", 2, "--plan", "--chart", "x.jpg"), "--chart x.jpg must end in .png, .svg or .pdf"),
    (("acm", "--plan", "--method", "given"), "--method given keeps the parts of a DistDGL partition"),
    ((DISTDGL, "--plan", "--parts", 3, "--method", "given"), "--parts 3, but the partition given has 2"),
    (("nowhere", "--plan", "--parts", 2), "nowhere does not exist"),
    (("--check", "nowhere"), "nowhere does not exist; need a partition"),
    (("--parts", 2, "--plan", "--data.preset", ""), "data.path is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_wrong_requests_are_one_line(tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.startswith("error: ")
    assert expected in line
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path, saved, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "photo.jpg").write_text("precious")
    assert run(saved, "--parts", 2, "--method", "random", "--out", taken) == 2
    assert "taken exists; choose another folder" in capsys.readouterr().err
    assert run(saved, "--parts", 2, "--method", "random", "--out", taken, "--overwrite") == 2
    assert "taken is not a partition" in capsys.readouterr().err
    assert (taken / "photo.jpg").read_text() == "precious"


def test_metis_that_is_not_installed(saved, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert run(saved, "--parts", 2, "--plan") == 2
    assert "error: --method metis needs pymetis" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", ["metis", "metapath"])
def test_a_graph_of_mags_size_fits_in_10_minutes_and_12_gib(tmp_path, method):
    if method == "metis":
        pytest.importorskip("pymetis")
    root = Path(partition.__file__).parents[1]
    recipe = ("--config", root / "configs" / "rgcn_mag.toml", "--parts", "4", "--method", method)
    command = ["timeout", "600", sys.executable, "-m", "jhgnn.partition", *recipe, "--out", tmp_path / "parts"]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss < 12 * 2**20  # KiB
    part = load_part(tmp_path / "parts", 3)
    assert part.manifest.num_nodes["paper"] == 736_389
    report = json.loads((tmp_path / "parts" / "report.json").read_text())
    assert report["balance"]["targets"]["train"] <= 1.051
    assert report["cut_share"] < 0.52  # 0.75 for random parts
