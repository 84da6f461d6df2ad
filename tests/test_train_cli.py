"""`python -m jhgnn.train`: good input leaves a whole run folder, the same for the same seed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe
from jhgnn.data import save_graph
from jhgnn.train import main
from jhgnn.training.checkpoint import CheckpointStore
from tests.commands import QUIET, the_error, train_arguments
from tests.models.heterographs import academic
from tests.models.test_models import EVERY_MODEL

pytestmark = pytest.mark.usefixtures("compile_cache")

PROMISED = {
    *("model", "dataset", "test_micro_f1", "test_macro_f1", "val_micro_f1", "best_epoch", "epochs", "epoch_ms"),
    *("compile_s", "sgb_s", "peak_temp_bytes", "params", "implementations", "seed", "versions"),
}
TIMES = ("epoch_ms", "compile_s", "read_s", "sgb_s", "step_ms")


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def strict(path: Path) -> dict:
    """JSON without NaN or Infinity, which other languages cannot read."""

    def refuse(name: str) -> None:
        raise ValueError(f"{path} holds {name}")

    return json.loads(path.read_text(), parse_constant=refuse)


def without_times(record: dict) -> dict:
    return {name: value for name, value in record.items() if name not in TIMES}


def best_params(folder: Path) -> dict[str, bytes]:
    """The stored arrays of the checkpoint as they lie on disk do not compare; their values do."""
    import jax

    from jhgnn.training.prepare import prepare
    from jhgnn.training.state import param_names

    abstract = prepare(load_recipe(folder / "recipe.toml"), progress=False).abstract_params
    loaded = CheckpointStore(folder / "checkpoints").load_best_params(abstract)
    return {name: np.asarray(leaf).tobytes() for name, leaf in param_names(jax.device_get(loaded)).items()}


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_every_model_trains_and_leaves_a_whole_run_folder(model, tmp_path, academic_path, capsys):
    run = tmp_path / "run"
    arguments = train_arguments(academic_path, run, "--training.epochs", "40", "--model.dropout", "0", model=model)
    assert main([*arguments, "--run.tensorboard", "true"]) == 0
    captured = capsys.readouterr()
    summary = strict(run / "summary.json")
    assert set(summary) >= PROMISED
    assert (summary["model"], summary["dataset"], summary["seed"]) == (model, "academic", 0)
    assert 1 <= summary["best_epoch"] <= summary["epochs"] <= 40
    assert summary["epoch_ms"] > 0
    assert summary["compile_s"] > 0
    assert summary["peak_temp_bytes"] > 0
    assert summary["params"] > 0
    assert summary["implementations"]
    assert summary["rows"] in ("all", "needed")
    assert summary["rows_reason"] in captured.out
    assert summary["versions"]["jax"]
    history = lines(run)
    assert [line["epoch"] for line in history] == list(range(1, summary["epochs"] + 1))
    assert history[-1]["step_loss"] < 0.8 * history[0]["step_loss"]
    best = history[summary["best_epoch"] - 1]
    assert (best["val_micro_f1"], best["test_micro_f1"]) == (summary["val_micro_f1"], summary["test_micro_f1"])
    assert min(line["val_loss"] for line in history) == best["val_loss"]
    config = load_recipe(run / "recipe.toml")
    assert (config.model.name, config.model.hidden, config.training.epochs) == (model, 16, 40)
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    (events,) = (run / "tensorboard").iterdir()
    assert events.stat().st_size > 1000
    assert f"{model} on academic" in captured.out
    assert "test micro-F1" in captured.out
    assert f"{model} epoch 40/40" in captured.err or "stopped" in captured.err or summary["stopped_by"] == "patience"
    assert not list(run.rglob("*.tmp*"))


@pytest.mark.slow
def test_same_seed_is_the_same_bit_for_bit(tmp_path, academic_path):
    more = ("--training.epochs", "6", "--model.attention_dropout", "0.5", "--model.feature_dropout", "0.3")
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert main(train_arguments(academic_path, tmp_path / name, *more, "--run.seed", seed, model="rgat")) == 0
    first, second, other = (list(map(without_times, lines(tmp_path / name))) for name in "abc")
    assert first == second
    assert first != other
    assert best_params(tmp_path / "a") == best_params(tmp_path / "b")
    assert best_params(tmp_path / "a") != best_params(tmp_path / "c")
    summaries = [without_times(strict(tmp_path / name / "summary.json")) for name in "ab"]
    assert summaries[0] == summaries[1]


@pytest.mark.slow
def test_several_seeds_give_mean_and_deviation(tmp_path, academic_path, capsys):
    run = tmp_path / "run"
    arguments = train_arguments(academic_path, run, "--training.epochs", "5")
    assert main([*arguments, "--seeds", "2", "--run.seed", "7"]) == 0
    assert "+-" in capsys.readouterr().out
    summary = strict(run / "summary.json")
    singles = [strict(run / f"seed-{seed}" / "summary.json") for seed in (7, 8)]
    assert set(summary) >= PROMISED
    assert summary["seed"] == [7, 8]
    assert summary["runs"] == singles
    scores = [single["test_micro_f1"] for single in singles]
    assert summary["test_micro_f1"] == pytest.approx(np.mean(scores))
    assert summary["test_micro_f1_std"] == pytest.approx(np.std(scores, ddof=1))
    # One of them alone gives the same run.
    assert main([*train_arguments(academic_path, tmp_path / "alone", "--training.epochs", "5"), "--run.seed", "8"]) == 0
    assert list(map(without_times, lines(tmp_path / "alone"))) == list(map(without_times, lines(run / "seed-8")))
    # Resuming finished seeds only reads them.
    assert main([*arguments, "--seeds", "2", "--run.seed", "7", "--resume"]) == 0
    again = strict(run / "summary.json")
    assert again["epoch_ms"] > 0
    assert (again["test_micro_f1"], again["best_epoch"]) == (summary["test_micro_f1"], summary["best_epoch"])
    capsys.readouterr()
    assert main([*arguments, "--run.seed", "7", "--resume"]) == 2
    assert "holds a run of several seeds; add --seeds N" in the_error(capsys.readouterr().err)


def saved(folder: Path, **changes: object) -> Path:
    """The academic graph with fields replaced, saved."""
    import dataclasses

    graph = dataclasses.replace(academic(), **changes)
    return save_graph(graph, folder / "graph")


@pytest.mark.slow
def test_multi_label_data_trains(tmp_path):
    data = save_graph(academic(multi_label=True), tmp_path / "graph")
    assert main(train_arguments(data, tmp_path / "run", "--training.epochs", "30", model="han")) == 0
    history = lines(tmp_path / "run")
    assert history[-1]["step_loss"] < history[0]["step_loss"]
    assert 0 < strict(tmp_path / "run" / "summary.json")["test_micro_f1"] < 1


@pytest.mark.parametrize(
    "model", ["rgcn", pytest.param("han", marks=pytest.mark.slow), pytest.param("gat", marks=pytest.mark.slow)]
)
def test_data_without_any_features_trains(model, tmp_path):
    data = saved(tmp_path, features={})
    more = ("--training.epochs", "30", "--training.learning_rate", "0.05", "--training.patience", "0")
    assert main(train_arguments(data, tmp_path / "run", *more, model=model)) == 0
    history = lines(tmp_path / "run")
    assert history[-1]["train_loss"] < history[0]["train_loss"]


def test_data_without_validation_trains_to_the_end_and_keeps_the_last_epoch(tmp_path, capsys):
    splits = {split: ids for split, ids in academic().splits.items() if split != "val"}
    data = saved(tmp_path, splits=splits)
    assert main(train_arguments(data, tmp_path / "run", "--training.epochs", "8", "--training.patience", "2")) == 0
    assert "no validation split" in capsys.readouterr().err
    summary = strict(tmp_path / "run" / "summary.json")
    assert (summary["best_epoch"], summary["epochs"], summary["val_micro_f1"]) == (8, 8, None)


def test_early_stopping_waits_as_long_as_it_was_told(tmp_path, academic_path):
    more = ("--training.epochs", "300", "--training.patience", "4", "--training.learning_rate", "0.1")
    assert main(train_arguments(academic_path, tmp_path / "run", *more)) == 0
    summary = strict(tmp_path / "run" / "summary.json")
    assert summary["stopped_by"] == "patience"
    assert summary["epochs"] == summary["best_epoch"] + 4 < 300


def test_default_recipe_is_the_synthetic_graph(tmp_path):
    arguments = ["--data.preset", "imdb", "--training.epochs", "2", "--run.dir", str(tmp_path / "run"), *QUIET]
    assert main([*arguments, "--model.name", "rgcn", "--model.layers", "1"]) == 0
    assert strict(tmp_path / "run" / "summary.json")["dataset"].startswith("synthetic")
    assert Config().data.path == ""


@pytest.mark.slow
def test_non_finite_loss_names_step_stage_and_tensor_and_leaves_a_checkpoint(tmp_path, academic_path, capsys):
    run = tmp_path / "run"
    arguments = train_arguments(academic_path, run, "--training.learning_rate", "1e30")
    assert main([*arguments, "--training.epochs", "20"]) == 1
    error = the_error(capsys.readouterr().err)
    epoch = int(error.split("epoch ")[1].split()[0])
    assert 1 < epoch < 20
    assert f"(step {epoch - 1})" in error
    assert any(f"stage {prefix}" in error for prefix in ("layer", "LC", "jvp")), error
    assert "tensor " in error
    assert "lower training.learning_rate" in error
    assert f"the state before it stays in {run}" in error
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"epoch-{epoch - 1:08d}"]
    assert [line["epoch"] for line in lines(run)] == list(range(1, epoch))
    # It resumes: to the same fault, or to its end where that comes before.
    assert main([*arguments, "--training.epochs", "20", "--resume"]) == 1
    assert the_error(capsys.readouterr().err) == error
    assert main(["--resume", "--run.dir", str(run), "--training.epochs", str(epoch - 1)]) == 0
    summary = strict(run / "summary.json")
    assert summary["epochs"] == epoch - 1
    assert all(math.isfinite(value) for value in summary.values() if isinstance(value, float))


def test_derived_metapaths_and_implementations_are_printed(tmp_path, academic_path, capsys):
    assert main(train_arguments(academic_path, tmp_path / "run", "--training.epochs", "1", model="han")) == 0
    stderr = capsys.readouterr().err
    assert "derived from the schema; set model.metapaths to choose" in stderr
    assert "neighbor_attention" in stderr
    assert strict(tmp_path / "run" / "summary.json")["metapaths"]


@pytest.mark.slow
def test_run_folders_are_numbered_where_none_is_named(tmp_path, academic_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = train_arguments(academic_path, Path("unused"), "--training.epochs", "1")
    del arguments[arguments.index("--run.dir") : arguments.index("--run.dir") + 2]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["rgcn_academic", "rgcn_academic-2"]
    more = [*arguments, "--resume", "--training.epochs", "2"]
    assert main(more) == 0
    assert len(lines(tmp_path / "runs" / "rgcn_academic-2")) == 2
    assert len(lines(tmp_path / "runs" / "rgcn_academic")) == 1
