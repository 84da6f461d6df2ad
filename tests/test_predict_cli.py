"""`python -m jhgnn.predict`: files that agree with the run's summary, and one line where it cannot."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jhgnn.data import load_graph, save_graph
from jhgnn.predict import main
from tests.commands import finish, run_train, start, the_error, train_arguments
from tests.models.heterographs import academic

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, academic_path, compile_cache) -> Path:
    """A run of HAN; tests copy it before they break it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_train(*train_arguments(academic_path, folder, "--training.epochs", "20", model="han")) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def micro_f1(predicted: np.ndarray, wanted: np.ndarray) -> float:
    """Of zeros and ones `[nodes, classes]`, as scikit-learn defines it."""
    hits = (predicted & wanted).sum()
    return 2 * hits / (predicted.sum() + wanted.sum())


def sets(cells: list[str], num_classes: int) -> np.ndarray:
    """`0|2` -> a row of booleans."""
    out = np.zeros((len(cells), num_classes), bool)
    for row, cell in enumerate(cells):
        out[row, [int(each) for each in cell.split("|") if each]] = True
    return out


def test_predictions_agree_with_the_summary(run, academic_path, capsys):
    assert main(["--run", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert f"40 paper nodes, parameters of epoch {summary['best_epoch']}" in capsys.readouterr().out
    graph, table = load_graph(academic_path), rows(run / "predictions" / "predictions.csv")
    assert [row["node"] for row in table] == [str(node) for node in range(40)]
    assert [row["label"] for row in table] == [str(label) for label in graph.labels]
    for split, ids in graph.splits.items():
        chosen = [row for row in table if row["split"] == split]
        assert {int(row["node"]) for row in chosen} == set(ids.tolist())
        accuracy = np.mean([row["predicted"] == row["label"] for row in chosen])
        assert accuracy == pytest.approx(summary[f"{split}_micro_f1"])
    probabilities = np.load(run / "predictions" / "probabilities.npy", allow_pickle=False)
    embeddings = np.load(run / "predictions" / "embeddings.npy", allow_pickle=False)
    assert (probabilities.shape, embeddings.shape) == ((40, 3), (40, 16))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert [int(row["predicted"]) for row in table] == probabilities.argmax(axis=1).tolist()
    certainties = [float(row["probability"]) for row in table]
    np.testing.assert_allclose(certainties, probabilities.max(axis=1), atol=1e-6)
    assert not list(run.rglob("*.tmp"))


def test_multi_label_predictions_agree_with_the_summary(tmp_path):
    data = save_graph(academic(multi_label=True), tmp_path / "graph")
    run = tmp_path / "run"
    assert run_train(*train_arguments(data, run, "--training.epochs", "40")) == 0
    assert main(["--run", str(run), "--output", str(tmp_path / "out" / "deep")]) == 0
    assert not (run / "predictions").exists()
    table = rows(tmp_path / "out" / "deep" / "predictions.csv")
    test = [row for row in table if row["split"] == "test"]
    predicted, wanted = (sets([row[name] for row in test], 3) for name in ("predicted", "label"))
    summary = json.loads((run / "summary.json").read_text())
    assert micro_f1(predicted, wanted) == pytest.approx(summary["test_micro_f1"])
    probabilities = np.load(tmp_path / "out" / "deep" / "probabilities.npy")
    np.testing.assert_array_equal(sets([row["predicted"] for row in table], 3), probabilities > 0.5)


def test_nodes_without_label_or_split_are_predicted_too(tmp_path):
    import dataclasses

    graph = academic()
    labels = graph.labels.copy()
    labels[graph.splits["test"]] = -1
    splits = {split: ids for split, ids in graph.splits.items() if split != "test"}
    data = save_graph(dataclasses.replace(graph, labels=labels, splits=splits), tmp_path / "graph")
    assert run_train(*train_arguments(data, tmp_path / "run", "--training.epochs", "3")) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["test_micro_f1"] is None
    assert main(["--run", str(tmp_path / "run")]) == 0
    table = rows(tmp_path / "run" / "predictions" / "predictions.csv")
    for node in graph.splits["test"]:
        assert (table[node]["label"], table[node]["split"]) == ("", "")
        assert table[node]["predicted"] in ("0", "1", "2")


def test_data_that_has_moved_is_named_anew(run, academic_path, tmp_path, capsys):
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(academic_path), "/moved/away"))
    assert main(["--run", str(run)]) == 2
    assert "/moved/away does not exist" in the_error(capsys.readouterr().err)
    assert main(["--run", str(run), "--data.path", str(academic_path)]) == 0


@pytest.mark.slow
def test_predictions_are_the_same_in_a_process_of_its_own(run, finished):
    code, stdout, stderr = finish(start("jhgnn.predict", "--run", run))
    assert code == 0, stderr
    assert stdout.startswith("40 paper nodes")
    before = (run / "predictions" / "predictions.csv").read_bytes()
    assert main(["--run", str(run)]) == 0
    assert (run / "predictions" / "predictions.csv").read_bytes() == before


def no_checkpoints(tmp_path: Path, run: Path) -> list[str]:
    shutil.rmtree(run / "checkpoints")
    return ["--run", str(run)]


def damaged(tmp_path: Path, run: Path) -> list[str]:
    (checkpoint,) = (run / "checkpoints").iterdir()
    (checkpoint / "digests.json").write_text("{")
    return ["--run", str(run)]


def several_seeds(tmp_path: Path, run: Path) -> list[str]:
    (run / "seed-0").mkdir()
    (run / "checkpoints").rename(run / "seed-0" / "checkpoints")
    return ["--run", str(run)]


def below_a_file(tmp_path: Path, run: Path) -> list[str]:
    (tmp_path / "file").write_text("precious")
    return ["--run", str(run), "--output", str(tmp_path / "file" / "out")]


def broken_recipe(tmp_path: Path, run: Path) -> list[str]:
    (run / "recipe.toml").write_text("[model]\nheds = 8\n")
    return ["--run", str(run)]


REFUSED = {
    "no run": (lambda tmp_path, run: ["--run", str(tmp_path / "nothing")], "holds no run"),
    "no --run": (lambda tmp_path, run: [], "the following arguments are required: --run"),
    "unknown option": (lambda tmp_path, run: ["--run", str(run), "--outptu", "x"], "did you mean --output?"),
    "no checkpoint yet": (no_checkpoints, "holds no complete checkpoint"),
    "damaged checkpoint": (damaged, "digests.json cannot be read"),
    "run of several seeds": (several_seeds, "name one of them, such as"),
    "output below a file": (below_a_file, "Not a directory"),
    "broken recipe": (broken_recipe, "unknown key model.heds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line(case, run, tmp_path, capsys):
    arrange, expected = REFUSED[case]
    assert main(arrange(tmp_path, run)) == 2
    captured = capsys.readouterr()
    assert expected in the_error(captured.err)
    assert captured.out == ""
    assert not (run / "predictions").exists()


@pytest.mark.slow
def test_data_with_new_nodes_of_a_learnt_type_is_refused(tmp_path, academic_path, capsys):
    """Papers have no features here, so their embedding table has a row each."""
    import dataclasses

    graph = dataclasses.replace(academic(), features={})
    data = save_graph(graph, tmp_path / "graph")
    assert run_train(*train_arguments(data, tmp_path / "run", "--training.epochs", "1")) == 0
    capsys.readouterr()
    bigger = save_graph(dataclasses.replace(academic(papers=41), features={}), tmp_path / "bigger")
    assert main(["--run", str(tmp_path / "run"), "--data.path", str(bigger)]) == 2
    assert "'40' of 'paper' is new" in the_error(capsys.readouterr().err)
    other = save_graph(academic(), tmp_path / "other")
    assert main(["--run", str(tmp_path / "run"), "--data.path", str(other)]) == 2
    assert "'paper' has features, but training had none" in the_error(capsys.readouterr().err)


@pytest.mark.slow
def test_nodes_and_classes_are_called_as_the_data_calls_them(tmp_path, academic_path):
    import dataclasses

    plain = load_graph(academic_path)
    names = np.array([f"paper, no. {number * 7}" for number in range(40)], np.dtypes.StringDType())
    keyed = dataclasses.replace(plain, keys={"paper": names}, class_names=("logic", "sets", "types"))
    tables = []
    for number, graph in enumerate((plain, keyed)):
        data, run = save_graph(graph, tmp_path / f"graph{number}"), tmp_path / f"run{number}"
        assert run_train(*train_arguments(data, run, "--training.epochs", "2")) == 0
        assert main(["--run", str(run)]) == 0
        tables.append(rows(run / "predictions" / "predictions.csv"))
    for row, own in zip(*tables, strict=True):
        assert own["node"] == f"paper, no. {int(row['node']) * 7}"
        for name in ("predicted", "label"):
            assert own[name] == keyed.class_names[int(row[name])]
        assert own["split"] == row["split"]


@pytest.mark.slow
def test_links_are_called_by_the_keys_of_both_types(tmp_path, academic_path):
    import dataclasses

    plain = load_graph(academic_path)
    keyed = dataclasses.replace(plain, keys={"paper": 100 + np.arange(40), "author": 500 + np.arange(25)})
    links = ["--task.name", "link_prediction", "--task.relations", "writes", "is_about", "--training.epochs", "1"]
    tables = []
    for number, graph in enumerate((plain, keyed)):
        data, run = save_graph(graph, tmp_path / f"graph{number}"), tmp_path / f"run{number}"
        assert run_train(*train_arguments(data, run, *links)) == 0
        assert main(["--run", str(run)]) == 0
        tables.append(rows(run / "predictions" / "links.csv"))
    first = {"author:writes:paper": (500, 100), "paper:is_about:subject": (100, 0)}  # subjects have no keys
    assert {row["relation"] for row in tables[0]} == set(first)
    for row, own in zip(*tables, strict=True):
        source, target = first[row["relation"]]
        assert (int(own["head"]), int(own["tail"])) == (int(row["head"]) + source, int(row["tail"]) + target)
        assert own["score"] == row["score"]
