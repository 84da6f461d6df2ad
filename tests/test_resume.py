"""Interrupted runs continue to bitwise the same parameters and metrics: asked to stop, killed, or told to train on."""

import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from jhgnn.train import main
from tests.commands import finish, send, start, train_arguments, wait_for_line
from tests.test_train_cli import lines, strict, without_times

pytestmark = pytest.mark.usefixtures("compile_cache")

DROPOUT = ("--model.dropout", "0.4", "--model.feature_dropout", "0.2")


def state_of(folder: Path) -> dict[str, bytes]:
    """Every array of the newest checkpoint: step, seed, parameters, optimizer, best parameters."""
    import jax

    from jhgnn.config.recipe import load_recipe
    from jhgnn.training.checkpoint import CheckpointStore
    from jhgnn.training.prepare import prepare
    from jhgnn.training.state import param_names

    config = load_recipe(folder / "recipe.toml")
    like = prepare(config, progress=False).saved_state
    checkpoint = CheckpointStore(folder / "checkpoints").load(like)
    leaves = param_names({"state": checkpoint.state._asdict(), "best": checkpoint.best_params})
    return {name: np.asarray(jax.device_get(leaf)).tobytes() for name, leaf in leaves.items()}


def killed_and_resumed(folder: Path, data: Path, *more: str, epochs: int) -> Path:
    """A run that is killed after an epoch and goes on, held against one that is not; returns its folder."""
    more = (*more, "--training.epochs", str(epochs), "--training.patience", "0")
    assert main(train_arguments(data, folder / "whole", *more)) == 0
    run, every = folder / "run", ("--training.checkpoint_every_s", "0", "--run.log_every", "1")
    process = start("jhgnn.train", *train_arguments(data, run, *more, *every))
    wait_for_line(process, f"/{epochs}: ")
    send(process, signal.SIGKILL)
    code, _, stderr = finish(process)
    assert code == 128 + signal.SIGKILL, stderr
    assert main(["--resume", "--run.dir", str(run)]) == 0
    assert state_of(folder / "whole") == state_of(run)
    return run


def same_runs(first: Path, second: Path) -> None:
    """Bitwise the same in all but times."""
    assert state_of(first) == state_of(second)
    assert list(map(without_times, lines(first))) == list(map(without_times, lines(second)))
    summaries = [without_times(strict(run / "summary.json")) for run in (first, second)]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    "model", ["han", pytest.param("rgcn", marks=pytest.mark.slow), pytest.param("rgat", marks=pytest.mark.slow)]
)
def test_resumed_run_is_bitwise_the_uninterrupted_one(model, tmp_path, academic_path):
    more = (*DROPOUT, "--model.layers", "1", "--training.patience", "0", "--run.seed", "11")
    for name, epochs in (("whole", 12), ("halves", 5)):
        arguments = train_arguments(academic_path, tmp_path / name, *more, model=model)
        assert main([*arguments, "--training.epochs", str(epochs)]) == 0
    assert main([*arguments, "--training.epochs", "12", "--resume"]) == 0
    same_runs(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.slow
def test_patience_counts_on_across_a_resume(tmp_path, academic_path):
    more = ("--training.patience", "6", "--training.learning_rate", "0.1")
    arguments = train_arguments(academic_path, tmp_path / "whole", *more)
    assert main([*arguments, "--training.epochs", "300"]) == 0
    stopped = strict(tmp_path / "whole" / "summary.json")
    arguments = train_arguments(academic_path, tmp_path / "halves", *more)
    assert main([*arguments, "--training.epochs", str(stopped["epochs"] - 3)]) == 0
    assert main([*arguments, "--training.epochs", "300", "--resume"]) == 0
    assert stopped["stopped_by"] == "patience"
    same_runs(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.slow
def test_run_knows_its_recipe_on_resume(tmp_path, academic_path):
    assert main(train_arguments(academic_path, tmp_path / "whole", "--training.epochs", "4")) == 0
    assert main(train_arguments(academic_path, tmp_path / "run", "--training.epochs", "2")) == 0
    assert main(["--resume", "--run.dir", str(tmp_path / "run"), "--training.epochs", "4"]) == 0
    same_runs(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_metrics_after_the_checkpoint_and_a_line_cut_short_are_written_again(tmp_path, academic_path):
    """What a kill leaves: metrics ahead of the checkpoint, half a line, half a checkpoint, a temporary file."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    arguments = train_arguments(academic_path, run, "--training.epochs")
    assert main([*arguments, "3"]) == 0
    shutil.copytree(run, whole)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "step_ms": 1.0, "train_loss": 9.9}\n{"epoch": 5, "step_')
    half = run / "checkpoints" / "epoch-00000005"
    shutil.copytree(run / "checkpoints" / "epoch-00000003", half)
    (half / "digests.json").unlink()
    (run / "checkpoints" / "epoch-00000004.orbax-checkpoint-tmp-1").mkdir()
    assert main([*arguments, "8", "--resume"]) == 0
    assert main([*train_arguments(academic_path, whole, "--training.epochs"), "8", "--resume"]) == 0
    same_runs(whole, run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["epoch-00000003", "epoch-00000008"]


@pytest.mark.slow
def test_run_killed_before_its_first_checkpoint_starts_again(tmp_path, academic_path):
    arguments = train_arguments(academic_path, tmp_path / "run", "--training.epochs", "3")
    assert main(arguments) == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert main([*arguments, "--resume"]) == 0
    assert main(train_arguments(academic_path, tmp_path / "whole", "--training.epochs", "3")) == 0
    same_runs(tmp_path / "whole", tmp_path / "run")


# With real processes.

LONG = ("--training.epochs", "100000", "--training.patience", "0", "--run.log_every", "20", *DROPOUT)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_signal_saves_says_so_and_resumes(number, tmp_path, academic_path):
    run = tmp_path / "run"
    process = start("jhgnn.train", *train_arguments(academic_path, run, *LONG))
    wait_for_line(process, "epoch 20/")
    send(process, number)
    code, stdout, stderr = finish(process)
    assert (code, stdout) == (128 + number, "")
    message = stderr.strip().splitlines()[-1]
    assert message.startswith(f"{number.name}: stopped after epoch ")
    assert message.endswith(f"continue with --resume --run.dir {run}")
    epoch = int(message.split("epoch ")[1].split()[0])
    assert epoch >= 20
    assert [line["epoch"] for line in lines(run)] == list(range(1, epoch + 1))
    total = epoch + 10
    code, _, stderr = finish(start("jhgnn.train", "--resume", "--run.dir", run, "--training.epochs", total))
    assert code == 0, stderr
    assert f"resumed after epoch {epoch} " in stderr
    whole = train_arguments(academic_path, tmp_path / "whole", *LONG, "--training.epochs", str(total))
    assert main(whole) == 0
    same_runs(tmp_path / "whole", run)


@pytest.mark.slow
def test_signal_before_the_first_epoch_loses_nothing(tmp_path, academic_path):
    run = tmp_path / "run"
    process = start("jhgnn.train", *train_arguments(academic_path, run, "--training.epochs", "3"))
    wait_for_line(process, "run folder")  # printed before the step is compiled
    send(process, signal.SIGTERM)
    code, _, stderr = finish(process)
    assert code == 128 + signal.SIGTERM
    trained = "stopped after epoch" in stderr  # it was compiled already
    assert trained or stderr.endswith(
        "SIGTERM: ended at once, before the first step: nothing is lost; start again as before\n"
    )
    assert run.exists() == trained
    again = (
        ["--resume", "--run.dir", str(run)]
        if trained
        else train_arguments(academic_path, run, "--training.epochs", "3")
    )
    assert main(again) == 0
    assert main(train_arguments(academic_path, tmp_path / "whole", "--training.epochs", "3")) == 0
    same_runs(tmp_path / "whole", run)


@pytest.mark.slow
def test_signal_among_several_seeds_resumes_those_that_are_left(tmp_path, academic_path):
    few = ("--training.epochs", "400", "--training.patience", "0", "--run.log_every", "100")
    process = start("jhgnn.train", *train_arguments(academic_path, tmp_path / "run", *few, "--seeds", "2"))
    wait_for_line(process, "rgcn seed 1 epoch 100/")
    send(process, signal.SIGTERM)
    code, _, stderr = finish(process)
    assert code == 128 + signal.SIGTERM
    assert stderr.strip().endswith("--seeds 2")
    assert main(["--resume", "--run.dir", str(tmp_path / "run"), "--seeds", "2"]) == 0
    assert main([*train_arguments(academic_path, tmp_path / "whole", *few), "--seeds", "2"]) == 0
    for seed in ("seed-0", "seed-1"):
        same_runs(tmp_path / "whole" / seed, tmp_path / "run" / seed)


@pytest.mark.slow
def test_kill_at_random_moments_resumes_to_bitwise_the_same(tmp_path, academic_path):
    """Checkpoints after every epoch, so most kills fall into the writing of one."""
    run, epochs = tmp_path / "run", 60
    more = ("--training.epochs", str(epochs), "--training.patience", "0", *DROPOUT)
    every = ("--training.checkpoint_every_s", "0", "--run.log_every", "1")
    assert main(train_arguments(academic_path, tmp_path / "whole", *more)) == 0
    chance, kills = random.Random(5), 0
    arguments: list = train_arguments(academic_path, run, *more, *every)
    for _ in range(12):
        process = start("jhgnn.train", *arguments)
        if kills == 0:
            wait_for_line(process, "run folder")
        else:
            wait_for_line(process, f"/{epochs}: ")
        time.sleep(chance.uniform(0.0, 0.25))
        send(process, signal.SIGKILL)
        code, _, stderr = finish(process)
        if code == 0:
            break
        assert code == 128 + signal.SIGKILL, stderr
        kills += 1
        arguments = ["--resume", "--run.dir", run]
        if kills == 6:
            break
    assert kills >= 3
    code, _, stderr = finish(start("jhgnn.train", "--resume", "--run.dir", run))
    assert code == 0, stderr
    same_runs(tmp_path / "whole", run)
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert len(names) <= 2
    assert names[-1] == f"epoch-{epochs:08d}"
