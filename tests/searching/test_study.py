"""Searches: picked by validation alone, pruned, continued, and nothing of a trial that was refused is lost."""

import csv
import dataclasses
import json
import math
import signal

import numpy as np
import pytest

import jhgnn
from jhgnn import search
from jhgnn.config.recipe import load_recipe
from jhgnn.data import save_graph
from jhgnn.errors import InputError
from jhgnn.runtime.console import Say
from jhgnn.runtime.interrupt import StopRequest
from jhgnn.searching import study as studies
from jhgnn.searching.finals import FINALS_FILE
from jhgnn.searching.report import plot
from jhgnn.searching.space import parse_space
from jhgnn.searching.study import Study
from jhgnn.train import parse
from tests.commands import the_error, train_arguments
from tests.models.heterographs import academic

pytestmark = pytest.mark.usefixtures("compile_cache")
SPACE = ("training.learning_rate=1e-3..1e-1 log", "model.dropout=0,0.3", "model.heads=2,3")


@pytest.fixture(scope="module")
def recipe(academic_path):
    """R-GAT of 8, so that 3 heads are refused."""
    return parse(train_arguments(academic_path, "", "--training.epochs", "3", "--model.hidden", "8", model="rgat"))[0]


@pytest.fixture(scope="module")
def tried(recipe, tmp_path_factory):
    """A study of six trials, four of them first."""
    folder = tmp_path_factory.mktemp("search") / "study"
    for trials in (4, 6):
        study = Study(folder, recipe, parse_space(SPACE, recipe))
        study.run(academic(), trials, Say(quiet=True), StopRequest())
    return Study(folder, recipe, parse_space(SPACE, recipe))


@pytest.mark.slow
def test_a_study_is_continued_and_counts_all_its_trials(tried):
    assert [each.number for each in tried.trials] == list(range(6))
    assert tried.figure == "loss"  # the recipe's monitor
    refused = [each for each in tried.trials if each.state == "refused"]
    assert all(each.settings["model.heads"] == 3 and "heads" in each.reason for each in refused)
    assert all(math.isnan(each.value) and each.epochs == 0 for each in refused)
    done = [each for each in tried.trials if each.state == "done"]
    assert done
    assert all(each.epochs == 3 and each.settings["model.heads"] == 2 for each in done)
    assert tried.best == min(done, key=lambda each: (each.value, each.number))


@pytest.mark.slow
def test_a_trial_scores_what_training_validates(tried):
    """The value is that of a run with the settings, and test scores appear nowhere."""
    run = jhgnn.fit(academic(), recipe=tried.config_of(tried.best), progress=False)
    assert tried.best.value == min(line["val_loss"] for line in run.metrics)
    assert not [name for name in dataclasses.asdict(tried.best) if "test" in name]


@pytest.mark.slow
def test_a_search_of_another_recipe_or_space_is_refused(tried, recipe):
    with pytest.raises(InputError, match=r"holds a search of another space; name another folder with --out"):
        Study(tried.folder, recipe, parse_space(SPACE[:1], recipe))
    other = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, seed=7))
    with pytest.raises(InputError, match=r"holds a search of another recipe"):
        Study(tried.folder, other, parse_space(SPACE, recipe))
    known = tried.folder / studies.STUDY_FILE
    kept = known.read_text()
    known.write_text("{")
    with pytest.raises(InputError, match=r"study\.json cannot be read"):
        Study(tried.folder, recipe, parse_space(SPACE, recipe))
    known.write_text(kept)


@pytest.mark.slow
def test_the_plot_shows_every_trial_that_was_trained(tried):
    panels = plot(tried).axes
    assert [panel.get_title() for panel in panels] == ["in order of trials", *(text.split("=")[0] for text in SPACE)]
    shown = sum(len(points.get_offsets()) for points in panels[0].collections)
    assert shown == sum(each.state != "refused" for each in tried.trials)
    assert panels[1].get_xscale() == "log"


@pytest.mark.slow
def test_a_request_to_stop_keeps_the_trials_that_ended(recipe, tmp_path):
    stop = StopRequest()
    study = Study(tmp_path / "study", recipe, parse_space(["model.dropout=0,0.3"], recipe))

    class Stopping(Say):
        def __call__(self, line):
            stop.signal = signal.SIGTERM

    study.run(academic(), 5, Stopping(quiet=True), stop)
    assert len(study.trials) == 1
    study.run(academic(), 2, Say(quiet=True), StopRequest())
    assert len(study.trials) == 2


@pytest.mark.slow
def test_trials_that_fall_behind_are_pruned(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "STARTING_TRIALS", 2)
    longer = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, epochs=12, patience=0))
    study = Study(tmp_path / "study", longer, parse_space(["training.learning_rate=1e-6,1e-1,1e-7,1e-8,2e-1"], longer))
    study.run(academic(), 10, Say(quiet=True), StopRequest())
    pruned = [each for each in study.trials if each.state == "pruned"]
    assert pruned
    assert all(1 < each.epochs < 12 and not np.isnan(each.value) for each in pruned)
    assert study.best.value == min(each.value for each in study.trials if each.state == "done")


def test_the_command_writes_a_recipe_a_table_and_a_plot(academic_path, tmp_path, capsys):
    out = tmp_path / "search"
    words = train_arguments(academic_path, "", "--training.epochs", "2", "--trials", "2", "--out", str(out))
    words += ["--search", "model.dropout=0.1,0.2"]
    assert search.main(words) == 0
    captured = capsys.readouterr()
    assert "the best of 2 trials" in captured.out
    assert "test" not in captured.out
    rows = list(csv.DictReader((out / "trials.csv").read_text().splitlines()))
    assert [row["trial"] for row in rows] == ["1", "2"]
    assert load_recipe(out / "best.toml").model.dropout in (0.1, 0.2)
    assert (out / "search.png").stat().st_size > 1000
    assert not list(out.glob(".trial-*"))
    assert search.main(words) == 0  # nothing is left to try
    assert len(list(csv.DictReader((out / "trials.csv").read_text().splitlines()))) == 2


def test_finals_pick_by_the_mean_over_other_seeds_and_are_kept(academic_path, tmp_path, capsys):
    out = tmp_path / "search"
    words = train_arguments(academic_path, "", "--training.epochs", "2", "--trials", "2", "--out", str(out))
    # The recipe's own rate learns in two epochs; those of the trials do not.
    words += ["--training.learning_rate", "0.05", "--search", "training.learning_rate=1e-7,2e-7"]
    words += ["--seeds", "2", "--finalists", "1"]
    assert search.main(words) == 0
    captured = capsys.readouterr()
    assert "finals over 2 seeds, by mean validation loss" in captured.out
    assert "the best recipe, the recipe:" in captured.err
    assert load_recipe(out / "best.toml").training.learning_rate == 0.05
    kept = json.loads((out / FINALS_FILE).read_text())
    assert list(kept["the recipe"]) == ["1", "2"]  # the trials had seed 0
    assert len(kept) == 2
    for seed, value in kept["the recipe"].items():
        recipe = parse([*words[: words.index("--trials")], "--training.learning_rate", "0.05", "--run.seed", seed])[0]
        run = jhgnn.fit(academic(), recipe=recipe, progress=False)
        assert value == min(line["val_loss"] for line in run.metrics)
    kept["the recipe"]["1"] = 1e9  # read, not trained again: a trial wins then
    (out / FINALS_FILE).write_text(json.dumps(kept))
    assert search.main(words) == 0
    assert "the best recipe, trial" in capsys.readouterr().err
    (out / FINALS_FILE).write_text("{]")
    assert search.main(words) == 2
    assert "finals.json cannot be read" in the_error(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--search", "model.dropout=0.1,0.2", "--trials", "0"], "--trials 0 must be at least 1"),
        (["--search", "model.dropout=0.1,0.2", "--seeds", "-1"], "--seeds -1 must be at least 0"),
        (["--search", "model.dropout=0.1,0.2", "--finalists", "0"], "--finalists 0 must be at least 1"),
        (["--trials", "3"], "--search: names no field"),
        (["--search", "model.heads=3,5"], "none of 1 trials could be trained"),
    ],
)
def test_bad_input_is_one_line(words, message, academic_path, tmp_path, capsys):
    base = train_arguments(academic_path, "", "--out", str(tmp_path / "out"), "--trials", "1", model="rgat")
    assert search.main([*base, *words]) == 2
    assert message in the_error(capsys.readouterr().err)


def test_data_without_validation_is_refused(tmp_path, capsys):
    graph = dataclasses.replace(academic(), splits={"train": np.arange(20, dtype=np.int32)})
    path = save_graph(graph, tmp_path / "graph")
    words = train_arguments(path, "", "--search", "model.dropout=0.1,0.2", "--out", str(tmp_path / "out"))
    assert search.main(words) == 2
    assert "no validation split" in the_error(capsys.readouterr().err)
