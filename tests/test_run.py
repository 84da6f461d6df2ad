"""A run: what it tells, how it is opened again, and what an interrupted one still gives."""

import csv
import dataclasses
import io
import json
import os
import shutil
import signal

import numpy as np
import pytest

import jhgnn
from jhgnn import predict
from jhgnn.models.rgat import RGAT
from tests.commands import the_error
from tests.models.heterographs import academic
from tests.test_fit import IN_BATCHES, bits, small

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.fixture(scope="module")
def graph():
    return academic()


@pytest.fixture(scope="module")
def trained(graph, tmp_path_factory, compile_cache) -> jhgnn.Run:
    """Six epochs of R-GCN, in a folder of its own."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return small(graph, model="rgcn", epochs=6, learning_rate=0.03, folder=folder)


def test_scores_metrics_and_the_best_epoch_say_the_same(trained, graph):
    assert [line["epoch"] for line in trained.metrics] == [1, 2, 3, 4, 5, 6]
    losses = [line["val_loss"] for line in trained.metrics]
    assert trained.best_epoch == 1 + int(np.argmin(losses))
    best = trained.metrics[trained.best_epoch - 1]
    for name in ("val_loss", "test_micro_f1", "train_micro_f1"):
        assert trained.scores[name] == pytest.approx(best[name], rel=1e-5)
    predicted = trained.predict().argmax(axis=1)
    test = graph.splits["test"]
    right = (predicted[test] == graph.labels[test]).mean()
    assert trained.scores["test_micro_f1"] == pytest.approx(right)
    assert trained.summary["epochs"] == 6
    assert repr(trained).startswith("Run(rgcn on academic, test_micro_f1 0.")


def test_the_parameters_are_those_of_the_best_epoch(trained, graph):
    again = small(graph, model="rgcn", epochs=trained.best_epoch, learning_rate=0.03)
    assert bits(again.params) == bits(trained.params)
    np.testing.assert_array_equal(again.predict(), trained.predict())


def test_embeddings_are_what_the_head_reads(trained):
    rows, head = trained.embeddings(), trained.params["classifier"]["linear"]
    assert (rows.dtype, rows.shape) == (np.float32, (40, 8))
    np.testing.assert_array_equal(trained.embeddings("paper"), rows)
    logits = rows @ np.asarray(head["kernel"]) + np.asarray(head["bias"])
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(trained.predict(), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)
    with pytest.raises(jhgnn.InputError, match=r"embeddings of 'author': this run makes rows of paper"):
        trained.embeddings("author")


def test_curves_are_drawn_from_the_metrics(trained):
    loss, quality = trained.plot().axes
    assert (loss.get_title(), quality.get_title()) == ("loss", "micro f1")
    by_name = {line.get_label(): line for line in loss.lines}
    np.testing.assert_array_equal(by_name["val"].get_ydata(), [line["val_loss"] for line in trained.metrics])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling", [{}, pytest.param({"sampling": IN_BATCHES}, marks=pytest.mark.slow)], ids=["full", "batches"]
)
def test_a_run_opened_again_gives_the_same(sampling, graph, tmp_path):
    data = jhgnn.save_graph(graph, tmp_path / "graph")
    recipe = dataclasses.replace(jhgnn.Config().data, format="jhgnn", path=str(data))
    config = dataclasses.replace(jhgnn.Config(), data=recipe)
    run = small(config, model="rgat", folder=tmp_path / "run", **sampling)
    for opened in (
        jhgnn.Run.open(tmp_path / "run", progress=False),
        jhgnn.Run.open(str(tmp_path / "run"), graph=graph),
        jhgnn.Run.open(tmp_path / "run", graph=graph, model=RGAT),
    ):
        np.testing.assert_array_equal(opened.predict(), run.predict())
        np.testing.assert_array_equal(opened.embeddings(), run.embeddings())
        assert (opened.scores, opened.best_epoch, opened.metrics) == (run.scores, run.best_epoch, run.metrics)
        assert opened.config == run.config


def test_what_the_command_predicts_is_what_the_run_predicts(trained, graph, tmp_path, capsys):
    shutil.copytree(trained.folder, tmp_path / "run")
    assert predict.main(["--run", str(tmp_path / "run")]) == 2
    assert "was trained on a graph in memory" in the_error(capsys.readouterr().err)
    data = jhgnn.save_graph(graph, tmp_path / "graph")
    assert predict.main(["--run", str(tmp_path / "run"), "--data.path", str(data)]) == 0
    written = np.load(tmp_path / "run" / "predictions" / "probabilities.npy")
    np.testing.assert_array_equal(written, trained.predict())
    assert (tmp_path / "run" / "predictions" / "predictions.csv").read_text() == trained.prediction_files()[
        "predictions.csv"
    ]


def test_what_cannot_be_opened_is_one_line(trained, tmp_path):
    with pytest.raises(jhgnn.InputError, match="holds no run"):
        jhgnn.Run.open(tmp_path)
    with pytest.raises(jhgnn.InputError, match=r"in memory; give it as Run.open\(..., graph=...\)"):
        jhgnn.Run.open(trained.folder)
    with pytest.raises(jhgnn.InputError, match="of another model"):
        jhgnn.Run.open(trained.folder, graph=academic(subjects=5))
    for arguments, message in (
        ({"folder": None}, "Run.open: folder must be a path, not NoneType"),
        ({"folder": 3}, "Run.open: folder must be a path, not int"),
        ({"graph": "ACM.zip"}, "Run.open: graph must be a HeteroGraph, not str"),
        ({"config": "recipe.toml"}, "Run.open: config must be a Config, not str"),
        ({"model": "rgcn"}, "is no subclass of jhgnn.Model"),
        ({"model": dict}, "is no subclass of jhgnn.Model"),
        ({"task": 3}, "makes no jhgnn.Task from a graph, but int"),
    ):
        given = {"folder": trained.folder, "graph": academic()} | arguments
        with pytest.raises(jhgnn.InputError) as caught:
            jhgnn.Run.open(given.pop("folder"), **given)
        assert message in str(caught.value)
    (tmp_path / "a_file").write_text("x")
    with pytest.raises(jhgnn.InputError, match="holds no run"):
        jhgnn.Run.open(tmp_path / "a_file")
    for node_type in (3, ["paper"], "venue"):
        with pytest.raises(jhgnn.InputError, match="this run makes rows of paper; name one of them"):
            trained.embeddings(node_type)
    broken = shutil.copytree(trained.folder, tmp_path / "run")
    (broken / "summary.json").write_text("{")
    with pytest.raises(jhgnn.InputError, match=r"summary.json: cannot be read"):
        jhgnn.Run.open(broken, graph=academic()).scores  # noqa: B018


@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_gives_the_run_as_it_is(kept, graph, tmp_path):
    def interrupt(result):
        if result.epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "run" if kept else None
    run = small(graph, model="rgcn", epochs=500, patience=0, callbacks=[interrupt], folder=folder)
    assert signal.getsignal(signal.SIGINT) is before
    assert (run.progress.epoch, len(run.metrics), run.scores) == (3, 3, {})
    assert 1 <= run.best_epoch <= 3
    assert run.predict().shape == (40, 3)
    assert "not ended" in repr(run)


@pytest.mark.slow
def test_links_are_predicted_with_ranks(graph):
    links = {"name": "link_prediction", "relations": ["writes", "covers"]}
    run = small(graph, model="rgcn", task=links, epochs=2)
    held_out = run.predict()
    assert set(held_out["split"]) == {"val", "test"}
    assert set(held_out["relation"]) <= {"author:writes:paper", "subject:covers:paper"}
    test = held_out[held_out["split"] == "test"]
    ranks = np.concatenate([test["head_rank"], test["tail_rank"]])
    assert run.scores["test_mrr"] == pytest.approx((1 / ranks).mean())
    assert run.embeddings("author").shape == (25, 8)
    with pytest.raises(jhgnn.InputError, match="embeddings of None"):
        run.embeddings()
    table = list(csv.DictReader(io.StringIO(run.prediction_files()["links.csv"])))
    assert [int(row["head"]) for row in table] == held_out["head"].tolist()
    assert run.plot().axes[1].get_title() == "mrr"
    assert json.loads((run.folder / "summary.json").read_text())["test_mrr"] == run.scores["test_mrr"]
