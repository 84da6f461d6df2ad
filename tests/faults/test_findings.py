"""What users and faults met: a full disk, a damaged checkpoint, a folder that went, sizes, signals while compiling."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jhgnn.errors import InputError
from jhgnn.training.checkpoint import CheckpointStore, Progress
from tests.commands import ROOT, finish, run_predict, run_train, send, start, the_error, train_arguments, wait_for_line
from tests.faults import shim as faults
from tests.test_resume import LONG, same_runs
from tests.training.test_checkpoint import state

pytestmark = pytest.mark.usefixtures("compile_cache")

EACH_EPOCH = ("--training.checkpoint_every_s", "0", "--training.patience", "0")


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def damage(checkpoint: Path, how: str) -> None:
    """Half of an array, or of the list of digests, is lost."""
    file = checkpoint / "digests.json"
    if how == "array":
        file = max(checkpoint.glob("*/d/*"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.slow
def test_a_disk_that_fills_up_under_a_checkpoint_is_one_line_that_names_what_is_left(tmp_path, academic_path, shim):
    run, log = tmp_path / "run", tmp_path / "log"
    arguments = train_arguments(academic_path, run, *EACH_EPOCH, "--training.epochs", "6")
    watched = {"FAULT_UNDER": str(run), "FAULT_LOG": str(log)}
    code, _, stderr = finish(faults.start(shim, watched, "jhgnn.train", *arguments))
    assert code == 0, stderr
    third = next(number for number, how, path in faults.calls(log) if how == "write" and "epoch-00000003" in path)
    run.rename(tmp_path / "whole")
    full = watched | {"FAULT_AT": str(third), "FAULT_KIND": "ENOSPC", "FAULT_STAYS": "1"}
    code, _, stderr = finish(faults.start(shim, full, "jhgnn.train", *arguments))
    assert code == 3
    error = the_error(stderr)
    assert "No space left on device" in error
    assert f"what is left is checkpoint {run / 'checkpoints' / 'epoch-00000002'}" in error
    assert error.endswith(f"continue with --resume --run.dir {run}")
    assert checkpoints(run) == ["epoch-00000001", "epoch-00000002"]
    assert run_train("--resume", "--run.dir", str(run)) == 0
    same_runs(tmp_path / "whole", run)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["digests", pytest.param("array", marks=pytest.mark.slow)])
def test_a_damaged_newest_checkpoint_costs_what_came_after_the_one_before(how, tmp_path, academic_path, capsys):
    run, whole = tmp_path / "run", tmp_path / "whole"
    arguments = train_arguments(academic_path, run, *EACH_EPOCH, "--training.epochs", "4")
    assert run_train(*arguments) == 0
    assert checkpoints(run) == ["epoch-00000003", "epoch-00000004"]
    shutil.copytree(run, whole)
    damage(run / "checkpoints" / "epoch-00000004", how)
    capsys.readouterr()
    assert run_predict("--run", str(run)) == 0
    told = "the older epoch-00000003 is taken in its place"
    assert told in capsys.readouterr().err
    for folder in (run, whole):
        assert run_train("--resume", "--run.dir", str(folder), "--training.epochs", "6") == 0
        err = capsys.readouterr().err
        assert (told in err) == (folder == run)
        assert f"resumed after epoch {3 if folder == run else 4} " in err
    same_runs(whole, run)


def test_a_store_without_a_sound_checkpoint_says_so_and_advises_no_deletion(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for epoch in (1, 2):
        store.save(state(epoch), state(epoch).params, Progress(epoch))
    for path in (tmp_path / "checkpoints").iterdir():
        damage(path, "digests")
    with pytest.raises(InputError, match="no older one is sound") as raised:
        CheckpointStore(tmp_path / "checkpoints").progress()
    assert "delete" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_run_folder_that_goes_ends_the_run_at_the_next_epoch(how, tmp_path, academic_path):
    run = tmp_path / "run"
    process = start("jhgnn.train", *train_arguments(academic_path, run, *LONG))
    wait_for_line(process, "epoch 20/")
    run.rename(tmp_path / "elsewhere")
    if how == "removed":
        shutil.rmtree(tmp_path / "elsewhere")
    gone = time.monotonic()
    code, _, stderr = finish(process)
    assert time.monotonic() - gone < 30
    assert code == 3
    assert f"run folder {run} was removed, moved or replaced while the run trained in it" in the_error(stderr)
    assert not run.exists()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("--model.hidden", "100000000"), "model.hidden = 100000000: the model's parameters ("),
        (("--model.layers", "1000"), "neighbor aggregations in one program, over the limit of 2,048"),
    ],
    ids=["hidden", "layers"],
)
def test_a_model_of_hopeless_size_is_refused_before_it_is_traced(setting, words, tmp_path, academic_path, capsys):
    began = time.monotonic()
    assert run_train(*train_arguments(academic_path, tmp_path / "run", *setting)) == 2
    assert time.monotonic() - began < 60
    assert words in the_error(capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


COMPILES_LONG = """
import signal, sys
# A shell's background jobs, such as these tests may be, ignore Ctrl-C, and so do the commands they start. (A preexec_fn
# would set it from outside, but forks, which JAX warns of.)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from jhgnn.nn import recompute
import jax, jax.numpy as jnp
def long(lowered):  # XLA unrolls and compiles for minutes, in one call that never returns to Python
    def body(x):
        for _ in range(20_000):
            x = jnp.sin(x) @ x
        return x
    lowered = jax.jit(body).lower(jnp.ones((8, 8)))
    print("compiling", file=sys.stderr, flush=True)
    return lowered.compile()
recompute.compile_with_barriers = long
import runpy
sys.argv = ["jhgnn.train", *sys.argv[1:]]
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["run folder", "compiling"])
def test_a_signal_before_the_first_step_ends_the_command_at_once(number, moment, tmp_path, academic_path):
    run = tmp_path / "run"
    command = [sys.executable, "-c", COMPILES_LONG, *train_arguments(academic_path, run)]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for_line(process, moment)
        time.sleep(0.5)
        send(process, number)
        sent = time.monotonic()
        code, _, stderr = finish(process)
    finally:
        process.kill()  # else it compiles for many minutes more
    assert time.monotonic() - sent < 5
    assert code == 128 + number
    last = stderr.strip().splitlines()[-1]
    assert last == f"{number.name}: ended at once, before the first step: nothing is lost; start again as before"
    assert not run.exists()
