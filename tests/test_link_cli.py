"""Link prediction from the command line: a run, its summary, resuming, predicting, and what is refused."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from jhgnn.data import save_graph
from jhgnn.graph.hetero_graph import HeteroGraph
from jhgnn.train import main
from tests.commands import run_predict

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.fixture(scope="module")
def graph_path(tmp_path_factory) -> Path:
    """Users who like the items of their own group, and who know each other within it."""
    rng = np.random.default_rng(0)
    group_of_user, group_of_item = rng.integers(0, 4, 60), np.arange(40) % 4
    users = np.repeat(np.arange(60), 6)
    items = np.array([rng.choice(np.flatnonzero(group_of_item == group_of_user[user])) for user in users])
    friends = np.array([rng.choice(np.flatnonzero(group_of_user == group_of_user[user])) for user in users])
    graph = HeteroGraph.from_arrays(
        name="liked",
        num_nodes={"user": 60, "item": 40},
        edges={("user", "likes", "item"): (users, items), ("user", "knows", "user"): (users, friends)},
    )
    return save_graph(graph, tmp_path_factory.mktemp("links") / "liked")


def arguments(data: Path, folder: Path, *more: str) -> list[str]:
    fixed = {
        "--data.format": "jhgnn", "--data.path": str(data), "--data.reverse_relations": "true",
        "--run.dir": str(folder), "--run.tensorboard": "false",
        "--task.name": "link_prediction", "--task.relations": "likes", "--task.scorer": "dot",
        "--task.batch_size": "64", "--task.skip": "true", "--task.exclude_targets": "true",
        "--model.name": "rgcn", "--model.layers": "1", "--model.hidden": "16", "--model.feature_dropout": "0.2",
        "--training.learning_rate": "0.02", "--training.weight_decay": "0", "--training.patience": "0",
    }  # fmt: skip
    return [word for pair in fixed.items() for word in pair] + list(more)


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def checkpoint_bytes(folder: Path) -> list[bytes]:
    """Every array of the newest checkpoint."""
    import jax

    from jhgnn.config.recipe import load_recipe
    from jhgnn.training.checkpoint import CheckpointStore
    from jhgnn.training.prepare import prepare

    like = prepare(load_recipe(folder / "recipe.toml"), progress=False).initial_state(0)
    found = CheckpointStore(folder / "checkpoints").load(like)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((found.state, found.best_params))]


@pytest.mark.slow
def test_a_run_learns_and_beats_chance_and_predicts(tmp_path, graph_path):
    run = tmp_path / "run"
    assert main(arguments(graph_path, run, "--training.epochs", "12")) == 0
    found = summary(run)
    assert found["test_auc"] > 0.75
    assert found["test_mrr"] > 0.12  # 0.1 by chance over 40 items, less over 60 users
    assert 0 <= found["test_hits@1"] <= found["test_hits@3"] <= found["test_hits@10"] <= 1
    assert "test_micro_f1" not in found
    assert (run / "curves.png").exists()
    assert run_predict("--run", str(run)) == 0
    table = list(csv.DictReader((run / "predictions" / "links.csv").read_text().splitlines()))
    ranks = np.array([[float(row["head_rank"]), float(row["tail_rank"])] for row in table if row["split"] == "test"])
    assert (1 / ranks).mean() == pytest.approx(found["test_mrr"])
    embeddings = {name: np.load(run / "predictions" / f"embeddings_{name}.npy") for name in ("user", "item")}
    assert embeddings["user"].shape == (60, 16)
    first = table[0]
    score = embeddings["user"][int(first["head"])] @ embeddings["item"][int(first["tail"])]
    assert score == pytest.approx(float(first["score"]), abs=1e-4)


@pytest.mark.slow
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path, graph_path):
    for name, epochs in (("whole", "6"), ("halves", "2")):
        assert main(arguments(graph_path, tmp_path / name, "--training.epochs", epochs)) == 0
    assert main(["--resume", "--run.dir", str(tmp_path / "halves"), "--training.epochs", "6"]) == 0
    assert checkpoint_bytes(tmp_path / "whole") == checkpoint_bytes(tmp_path / "halves")
    timeless = [
        [{k: v for k, v in json.loads(line).items() if not k.endswith("_ms")} for line in path.read_text().splitlines()]
        for path in (tmp_path / name / "metrics.jsonl" for name in ("whole", "halves"))
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.slow
def test_a_run_stopped_in_mid_epoch_resumes_bitwise(tmp_path, graph_path, monkeypatch):
    import signal

    from jhgnn.training import loop

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main(arguments(graph_path, whole, "--training.epochs", "3")) == 0
    one_batch, done = loop._Run._one_batch, []

    def counting(self, *arguments):
        one_batch(self, *arguments)
        done.append(self.progress)
        if len(done) == 6:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(loop._Run, "_one_batch", counting)
    assert main(arguments(graph_path, stopped, "--training.epochs", "3")) == 128 + signal.SIGTERM
    assert done[-1].step > 0
    monkeypatch.undo()
    assert main(["--resume", "--run.dir", str(stopped)]) == 0
    assert checkpoint_bytes(whole) == checkpoint_bytes(stopped)


def test_early_stopping_by_auc_and_the_baseline_without_a_graph(tmp_path, graph_path):
    run = tmp_path / "run"
    off = ("--task.encoder", "none", "--task.skip", "false", "--task.exclude_targets", "false")
    more = ("--training.epochs", "60", "--training.patience", "2", "--training.monitor", "auc")
    assert main(arguments(graph_path, run, *off, *more)) == 0
    found = summary(run)
    assert found["stopped_by"] == "patience"
    assert found["epochs"] == found["best_epoch"] + 2
    assert found["implementations"] == {}
    best = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][found["best_epoch"] - 1]
    assert best["val_auc"] == max(json.loads(x)["val_auc"] for x in (run / "metrics.jsonl").read_text().splitlines())
    assert found["val_auc"] == pytest.approx(best["val_auc"], abs=1e-6)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_names_step_stage_and_tensor_and_keeps_the_state_before(tmp_path, graph_path, capsys):
    run = tmp_path / "run"
    assert main(arguments(graph_path, run, "--training.epochs", "4", "--training.learning_rate", "1e30")) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "batch" in line
    assert "first in stage" in line
    assert "tensor" in line
    assert list((run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--model.name", "han"), "links need 'rgcn' or 'rgat'"),
        (("--model.name", "rgat", "--model.heads", "2"), "over the whole graph works with 'rgcn'"),
        (("--sampling.batch_size", "8"), "whose rows a mini-batch does not have"),
        (
            ("--training.monitor", "micro_f1"),
            "training.monitor = 'micro_f1' is no figure of link_prediction; use one of 'mrr', 'auc', 'loss'",
        ),
        (("--task.encoder", "none"), "task.encoder is 'none'"),
        (("--training.label_smoothing", "0.1"), "links have none"),
        (("--training.class_weights", "balanced"), "weigh classes; links have none"),
        (("--data.validation", "false"), "links that validate never train"),
        (("--task.relations", "hates"), "task.relations: 'hates' is unknown"),
        (("--kernels.mean", "dense", "--model.bases", "2"), "weighted messages are summed by 'bucketed' or 'native'"),
    ],
)
def test_what_does_not_fit_is_one_line(more, message, tmp_path, graph_path, capsys):
    assert main(arguments(graph_path, tmp_path / "run", *more)) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_options_of_links_are_refused_for_classes(capsys):
    assert main(["--task.negatives", "5"]) == 2
    assert "task.negatives = 5 is for task.name = 'link_prediction'" in capsys.readouterr().err
