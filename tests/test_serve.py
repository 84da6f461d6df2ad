"""`predict` on other data and on some nodes, and `serve`, as commands: keys, files, JSON lines and what is refused."""

import csv
import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jhgnn import predict, serve
from jhgnn.data import save_graph
from tests.commands import ROOT, run_train, the_error, train_arguments
from tests.inference.test_new_nodes import KEPT, part, with_keys
from tests.models.heterographs import academic

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Path:
    """All papers, with keys."""
    graph = dataclasses.replace(with_keys(academic()), class_names=("logic", "sets", "types"))
    return save_graph(graph, tmp_path_factory.mktemp("grown") / "graph")


@pytest.fixture(scope="module")
def run(tmp_path_factory, compile_cache) -> Path:
    """Trained on four fifths of the papers, and three of the four subjects."""
    graph = dataclasses.replace(with_keys(academic()), class_names=("logic", "sets", "types"))
    folder = tmp_path_factory.mktemp("run")
    data = save_graph(part(graph, {"paper": KEPT, "subject": np.arange(3)}), folder / "graph")
    assert run_train(*train_arguments(data, folder / "run", "--training.epochs", "5")) == 0
    return folder / "run"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_new_nodes_are_predicted_by_key(run, grown, tmp_path, capsys):
    of_old = academic().edges
    covers = next(own for relation, own in of_old.items() if relation.name == "covers")
    safe = [f"p{paper}" for paper in covers.receivers[covers.senders < 3]]
    whole = ["--run", str(run), "--data.path", str(grown)]
    assert predict.main([*whole, "--output", str(tmp_path / "all")]) == 2
    assert "--new-nodes mean" in the_error(capsys.readouterr().err)
    (tmp_path / "keys").write_text("\n".join(safe) + "\n")
    assert predict.main([*whole, "--nodes", f"@{tmp_path / 'keys'}", "--output", str(tmp_path / "some")]) == 0
    assert f"{len(safe)} of 40 paper nodes, parameters of epoch" in capsys.readouterr().out
    table = rows(tmp_path / "some" / "predictions.csv")
    assert [row["node"] for row in table] == safe
    assert {row["predicted"] for row in table} <= {"logic", "sets", "types"}
    assert len(np.load(tmp_path / "some" / "embeddings.npy")) == len(safe)
    two = [*whole, "--nodes", f"{safe[4]}, {safe[1]}", "--output", str(tmp_path / "two")]
    assert predict.main(two) == 0
    assert rows(tmp_path / "two" / "predictions.csv") == [table[4], table[1]]


def test_some_nodes_of_the_graph_that_was_trained_on(run, tmp_path):
    assert predict.main(["--run", str(run), "--output", str(tmp_path / "all")]) == 0
    assert predict.main(["--run", str(run), "--nodes", "p4,p0", "--output", str(tmp_path / "some")]) == 0
    every = {row["node"]: row for row in rows(tmp_path / "all" / "predictions.csv")}
    for row in rows(tmp_path / "some" / "predictions.csv"):
        own = every[row["node"]]
        assert (row["predicted"], row["split"], row["label"]) == (own["predicted"], own["split"], own["label"])
        assert float(row["probability"]) == pytest.approx(float(own["probability"]), abs=2e-6)


@pytest.mark.slow
def test_tables_that_have_grown_keep_the_categories_of_training(tmp_path):
    """A new category and another mean age change nothing of what the old values become."""
    schema = """
[nodes.customer]
files = "customers.csv"
key = "id"
features = { age = "number", country = "category" }
[nodes.item]
[edges."customer:buys:item"]
files = "buys.csv"
source = "customer"
target = "item"
[labels]
type = "customer"
column = "segment"
[splits]
shares = { train = 0.6, val = 0.2, test = 0.2 }
"""
    draw = np.random.default_rng(0)
    people = [(f"c{n}", int(draw.integers(18, 80)), "DE" if n % 3 else "FR", "ab"[n % 2]) for n in range(30)]
    buys = [(f"c{n}", f"i{draw.integers(0, 6)}") for n in range(30) for _ in range(3)]
    for name, more in (("old", []), ("new", [("new1", 300, "PL", "")])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tables.toml").write_text(schema)
        lines = ["id,age,country,segment", *(",".join(map(str, each)) for each in people + more)]
        (folder / "customers.csv").write_text("\n".join(lines) + "\n")
        bought = buys + [("new1", "i2"), ("new1", "i3")] * bool(more)
        (folder / "buys.csv").write_text("customer,item\n" + "\n".join(",".join(each) for each in bought) + "\n")
    more = ("--training.epochs", "5", "--data.reverse_relations", "true", "--model.layers", "2")
    arguments = train_arguments(tmp_path / "old", tmp_path / "run", *more)
    arguments[arguments.index("jhgnn")] = "tables"
    assert run_train(*arguments) == 0
    assert predict.main(["--run", str(tmp_path / "run")]) == 0
    old = rows(tmp_path / "run" / "predictions" / "predictions.csv")
    new = ["--run", str(tmp_path / "run"), "--data.path", str(tmp_path / "new"), "--output", str(tmp_path / "out")]
    assert predict.main(new) == 0
    new = rows(tmp_path / "out" / "predictions.csv")
    assert [row["node"] for row in new] == [*(each[0] for each in people), "new1"]
    apart = {f"c{n}" for n in range(30)} - {who for who, what in buys if what in ("i2", "i3")}
    assert apart
    for before, after in zip(old, new, strict=False):
        if before["node"] in apart:  # the others have new neighbours' neighbours
            assert float(after["probability"]) == pytest.approx(float(before["probability"]), abs=2e-6)


def test_answers_are_lines_of_json(run, grown, monkeypatch, capsys):
    arguments = ["--run", str(run), "--data.path", str(grown), "--new-nodes", "refuse", "--warm", "3"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("p3\n\nnobody\np0\n"))
    assert serve.main(arguments) == 0
    captured = capsys.readouterr()
    answers = [json.loads(line) for line in captured.out.splitlines()]
    assert [answer["node"] for answer in answers] == ["p3", "nobody", "p0"]
    assert "is no key of node type 'paper'" in answers[1]["error"]
    for answer in (answers[0], answers[2]):
        if "error" in answer:
            assert "--new-nodes mean" in answer["error"]
        else:
            assert answer["predicted"] in ("logic", "sets", "types")
            assert answer["ms"] > 0
    assert captured.err.startswith("ready: 40 paper nodes\n")


@pytest.mark.slow
def test_a_resident_process_answers_as_predict_does(run, tmp_path):
    assert predict.main(["--run", str(run), "--output", str(tmp_path / "all")]) == 0
    every = {row["node"]: row for row in rows(tmp_path / "all" / "predictions.csv")}
    command = [sys.executable, "-m", "jhgnn.serve", "--run", str(run), "--warm", "1"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for key in ("p0", "p4"):  # each is answered before the next is asked
            process.stdin.write(f"{key}\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["node"], answer["predicted"]) == (key, every[key]["predicted"])
            assert answer["probability"] == pytest.approx(float(every[key]["probability"]), abs=2e-6)
        process.stdin.close()
        assert process.wait(60) == 0
        said = process.stderr.read()
    assert said.startswith("ready: 32 paper nodes")
    assert "2 answers: p50" in said


REFUSED = {
    "no such run": (["--run", "/nowhere"], "holds no run"),
    "warm": (["--run", "RUN", "--warm", "-1"], "--warm -1: need 0 or more"),
    "rule": (["--run", "RUN", "--new-nodes", "zero"], "invalid choice"),
    "data": (["--run", "RUN", "--data.path", "/nowhere"], "/nowhere does not exist"),
    "format": (["--run", "RUN", "--data.path", "/nowhere", "--data.format", "x"], "data.format"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_of_serve_is_one_line(case, run, capsys):
    arguments, expected = REFUSED[case]
    assert serve.main([str(run) if each == "RUN" else each for each in arguments]) == 2
    assert expected in the_error(capsys.readouterr().err)


def test_bad_nodes_are_one_line(run, tmp_path, capsys):
    for nodes, expected in (("p0,zz", "'zz' is no key"), (",", "names no node"), ("@/nowhere", "cannot be read")):
        assert predict.main(["--run", str(run), "--nodes", nodes, "--output", str(tmp_path / "out")]) == 2
        assert expected in the_error(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
