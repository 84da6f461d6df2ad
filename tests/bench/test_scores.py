"""The README's table of results: one command, resumable, that writes it once all cells are there."""

import json
import os
import re
import shlex
import signal
import sys
import threading
from pathlib import Path

import pytest

from bench import scores
from bench.record import ROOT
from bench.scores import BEGIN, CASES, END
from jhgnn.training.summary import versions

ARGUMENT = {name: position for position, name in enumerate(("--config", "--data.path", "--seeds", "--run.dir"))}


class Trainings:
    """Stands in for `jhgnn.train`: writes a summary, or ends with a code as if it were interrupted."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.code = 0

    def __call__(self, command: list[str]) -> int:
        self.commands.append(command)
        value = dict(zip(command[3::2], command[4::2], strict=False))
        folder = Path(value["--run.dir"])
        folder.mkdir(exist_ok=True)
        (folder / "recipe.toml").touch()
        if self.code:
            return self.code
        runs = [self.summary(seed) for seed in range(int(value["--seeds"]))]
        (folder / "summary.json").write_text(json.dumps(runs[0] if len(runs) == 1 else runs[0] | {"runs": runs}))
        return 0

    @staticmethod
    def summary(seed: int) -> dict:
        share = 0.9 + 0.01 * seed
        figures = {"test_micro_f1": share, "test_macro_f1": share, "best_epoch": 3, "epochs": 9, "epoch_ms": 1.0}
        return figures | {"seed": seed, "versions": versions()}


@pytest.fixture
def trainings(monkeypatch, tmp_path):
    found = Trainings()
    monkeypatch.setattr(scores, "run", found)
    monkeypatch.setattr(scores, "changed_since", lambda name, *paths: False)
    for _, folder in scores.DATASETS.values():
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "page.md").write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    return found


def command(folder: Path, *more: str) -> int:
    own = {"--data": "data", "--output": "scores.json", "--page": "page.md", "--runs": "runs"}
    return scores.main([part for name, value in own.items() for part in (name, str(folder / value))] + [*more])


def stored(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_text())["rows"]


def test_all_cells_make_the_table(trainings, tmp_path):
    assert command(tmp_path, "--seeds", "2") == 0
    assert list(stored(tmp_path)) == list(CASES)
    assert len(CASES) == 18
    text = (tmp_path / "page.md").read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n\n| data | HAN | R-GCN | R-GAT |\n|---|---|---|---|\n")
    assert text.endswith(f"\n\n{END}\n\nafter\n")
    assert "| AIFB | 90.50 +- 0.71 (2 seeds) | 90.50 +- 0.71 (2 seeds) | 90.50 +- 0.71 (2 seeds) |" in text
    assert command(tmp_path, "--seeds", "2") == 0
    assert len(trainings.commands) == 18  # nothing is trained twice


def test_a_part_of_the_cells_leaves_the_page_alone(trainings, tmp_path, capsys):
    assert command(tmp_path, "--only", "rgcn_acm", "--only", "han_aifb") == 0
    assert {name: len(row["seeds"]) for name, row in stored(tmp_path).items()} == {"rgcn_acm": 20, "han_aifb": 5}
    assert "old" in (tmp_path / "page.md").read_text()
    assert "page.md keeps its table: han_acm, rgat_acm," in capsys.readouterr().out


def test_other_seeds_versions_or_sources_are_trained_again(trainings, tmp_path, monkeypatch):
    only = ("--only", "rgat_imdb")
    for count, arguments in ((1, ("--seeds", "1")), (2, ("--seeds", "3")), (2, ("--seeds", "3"))):
        assert command(tmp_path, *only, *arguments) == 0
        assert len(trainings.commands) == count
    monkeypatch.setattr("jhgnn.training.summary.versions", lambda: versions() | {"jax": "0"})
    assert command(tmp_path, *only, "--seeds", "3") == 0
    assert len(trainings.commands) == 3
    monkeypatch.undo()
    monkeypatch.setattr(scores, "run", trainings)
    monkeypatch.setattr(scores, "changed_since", lambda name, *paths: "configs/rgat_imdb.toml" in paths)
    assert command(tmp_path, *only, "--seeds", "3") == 0
    assert len(trainings.commands) == 4
    assert stored(tmp_path)["rgat_imdb"]["changed"]


def test_an_interrupted_training_is_resumed(trainings, tmp_path):
    trainings.code = 130
    assert command(tmp_path, "--only", "han_imdb") == 130
    assert not (tmp_path / "scores.json").exists()
    trainings.code = 0
    assert command(tmp_path, "--only", "han_imdb") == 0
    first, second = trainings.commands
    assert second == [*first, "--resume"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "han_cora"], "--only han_cora is none of han_acm,"),
        (["--seeds", "0"], "--seeds 0 must be at least 1"),
        (["--data", "nowhere"], "--data nowhere: holds no acm_gtn, which han_acm needs"),
        (["--output", "page.md"], "page.md: not stored scores"),
    ],
)
def test_bad_input_is_one_line(arguments, message, trainings, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(tmp_path, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_signal_goes_to_the_training_which_is_waited_for(tmp_path):
    code = "import pathlib, signal, sys, time\n"
    code += (
        f"signal.signal(signal.SIGINT, lambda *_: (pathlib.Path({str(tmp_path / 'saved')!r}).touch(), sys.exit(130)))\n"
    )
    code += f"pathlib.Path({str(tmp_path / 'begun')!r}).touch(); time.sleep(60)"

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            ended.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    ended = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert scores.run([sys.executable, "-c", code]) == 130
    thread.join()
    assert (tmp_path / "saved").exists()


def test_the_readme_shows_the_command_and_what_it_writes():
    text = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"^python -m bench\.scores .*$", text, re.MULTILINE)
    assert scores.parser().parse_args(shlex.split(shown)[3:]).only is None
    table = text.partition(BEGIN)[2].partition(END)[0]
    assert [line.split(" | ")[0] for line in table.split("\n")[4:-2]] == [f"| {t}" for t, _ in scores.DATASETS.values()]
    assert all((ROOT / "configs" / f"{name}.toml").exists() for name in CASES)
