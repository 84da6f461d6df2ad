"""Training on 1, 2, 4 and 8 devices and in two processes: the same parameters; kills and resumes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("compile_cache")

ROOT = Path(__file__).parents[2]
SMALL = [
    "--data.preset=acm",
    "--data.scale=0.1",
    "--model.name=rgcn",
    "--model.layers=2",
    "--model.hidden=16",
    "--sampling.batch_size=16",
    "--sampling.fan_out=5,5",
    "--training.patience=0",
    "--run.tensorboard=false",
]
EQUAL = 1e-6
"""Float32 sums in another order, after 20 updates. Adam, whose eps is 1e-8, turns the rounding of gradients that should
cancel to zero, as some of attention do, into steps of up to 1e-5: models with attention are compared under SGD."""

DEVICES = """
import sys, json
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", 8)
from tests.models.heterographs import academic
from tests.training.minibatches import compiled, recipe, steps
training = {"optimizer": sys.argv[2], "learning_rate": float(sys.argv[3])}
config, first, worst = recipe(sys.argv[1], training=training), None, {}
for devices in (1, 2, 4, 8):
    state, reports = steps(compiled(academic(), config, devices), 20)
    assert all(bool(r.finite) for r in reports)
    first = first or state.params
    gaps = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), state.params, first)
    worst[devices] = max(jax.tree.leaves(gaps))
print(json.dumps(worst))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimizer", "rate"),
    [
        ("rgcn", "adam", "0.005"),
        pytest.param("rgat", "sgd", "0.05", marks=pytest.mark.long),
        pytest.param("han", "sgd", "0.05", marks=pytest.mark.long),
    ],
)
def test_any_number_of_devices_gives_the_same_parameters_after_20_steps(name, optimizer, rate):
    command = [sys.executable, "-c", DEVICES, name, optimizer, rate]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout.splitlines()[-1]).values()) <= EQUAL


def environment() -> dict[str, str]:
    return dict(os.environ) | {"JAX_PLATFORMS": "cpu"}


def start(folder: Path, *options: str, program: Sequence[str] = ("-m", "jhgnn.train")) -> subprocess.Popen:
    command = [sys.executable, *program, *SMALL, f"--run.dir={folder}", *options]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def start_two(
    folder: Path, *options: str, each: Sequence[Sequence[str]] = ((), ()), **how: Sequence[str]
) -> list[subprocess.Popen]:
    """Two processes of one run, with these options and further ones of `each`."""
    where = free_address()
    return [
        start(
            folder,
            f"--distributed.coordinator={where}",
            "--distributed.num_processes=2",
            *options,
            *each[number],
            f"--distributed.process_id={number}",
            **how,
        )
        for number in range(2)
    ]


def finish(*running: subprocess.Popen, code: int = 0) -> list[str]:
    """What each wrote to stderr; all end with `code`, and none outlives the test."""
    try:
        errors = [process.communicate(timeout=600)[1] for process in running]
    finally:
        for process in running:
            process.kill()  # does nothing to one that has ended
            process.communicate()
    assert [process.returncode for process in running] == [code] * len(running), errors
    return errors


SLOW_TO_COMPILE = """
import sys, time
from jhgnn.nn import recompute
compile_now, waited = recompute.compile_with_barriers, []
def late(lowered):
    if sys.argv[-1].endswith("1") and not waited:
        waited.append(time.sleep(35))
    return compile_now(lowered)
recompute.compile_with_barriers = late
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_process_that_compiles_longer_than_gloo_waits_is_waited_for(tmp_path):
    finish(*start_two(tmp_path / "run", "--training.epochs=1", program=["-c", SLOW_TO_COMPILE]))


SLOW_TO_DRAW = """
import sys, time
from jhgnn.training import reporting
draw_now = reporting.draw_curves
def late(folder):
    time.sleep(15)
    return draw_now(folder)
reporting.draw_curves = late
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.slow
def test_processes_wait_for_the_one_that_writes_the_summary(tmp_path):
    """Longer than the runtime's farewell would, after which all of them fail although the run is complete."""
    options = ("--training.epochs=1", "--distributed.heartbeat_timeout_s=5")
    finish(*start_two(tmp_path / "run", *options, program=["-c", SLOW_TO_DRAW]))


TOLD_LATE = """
import pathlib, sys, time
import jax
from jhgnn.config import DistributedConfig
from jhgnn.runtime import processes
initialize, number, told = jax.distributed.initialize, int(sys.argv[2]), pathlib.Path(sys.argv[3])
def late(**known):
    initialize(**known)
    if number:
        time.sleep(3)
        told.touch()
jax.distributed.initialize = late
processes.join(DistributedConfig(coordinator=sys.argv[1], num_processes=2, process_id=number))
processes.leave(0 if told.exists() else 1)
"""


@pytest.mark.slow
def test_no_process_goes_on_before_all_know_that_they_have_joined(tmp_path):
    """Else the first could end while another still looks for it, which then waits for minutes."""
    arguments = [sys.executable, "-c", TOLD_LATE, free_address()]
    commands = [[*arguments, str(number), str(tmp_path / "told")] for number in range(2)]
    finish(*(
        subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
        for command in commands
    ))  # fmt: skip


SLOW_TO_LEAVE = """
import sys, time
from jhgnn.runtime import agreement, processes
processes._FAREWELL_MS = 1000
refuse, number = agreement.refuse, int(sys.argv[-1].rpartition("=")[2])
def late(why):
    time.sleep(8 * number)
    refuse(why)
agreement.refuse = late
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_process_that_said_why_it_ends_is_not_told_of_the_end_of_another(tmp_path):
    different = [["--model.dropout=0.2"], ["--model.dropout=0.3"]]
    errors = finish(*start_two(tmp_path / "run", each=different, program=["-c", SLOW_TO_LEAVE]), code=2)
    assert all(error.count("error: ") == 1 for error in errors), errors


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["a used folder", "a missing graph"])
def test_each_process_says_in_one_line_what_input_is_wrong(wrong, tmp_path):
    folder, options = tmp_path / "run", []
    if wrong == "a used folder":
        folder.mkdir()
        (folder / "recipe.toml").touch()
    else:
        options = [f"--data.path={tmp_path / 'nowhere'}"]
    expected = {"a used folder": "holds a run already", "a missing graph": "nowhere"}[wrong]
    for error in finish(*start_two(folder, *options), code=2):
        assert expected in error
        assert sum(line.startswith("error: ") for line in error.splitlines()) == 1
        assert "Terminating process" not in error


def newest_checkpoint(folder: Path) -> str:
    """The name of the last whole checkpoint, which sorts as they were written; empty where there is none."""
    return max((path.parent.name for path in folder.glob("checkpoints/epoch-*/digests.json")), default="")


def wait_for_checkpoint_after(folder: Path, name: str, running: Sequence[subprocess.Popen]) -> None:
    deadline = time.monotonic() + 300
    while newest_checkpoint(folder) <= name:
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in running), running[0].communicate()
        time.sleep(0.1)


@pytest.mark.slow
def test_two_processes_train_as_one_and_survive_a_death(tmp_path):
    options = ("--training.epochs=30", "--training.checkpoint_every_s=0.5")
    alone, together = tmp_path / "alone", tmp_path / "together"
    finish(start(alone, *options))
    pair = start_two(together, *options)
    wait_for_checkpoint_after(together, "", pair)
    pair[1].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    error = pair[0].communicate(timeout=60)[1]
    assert time.monotonic() - killed < 60
    assert pair[0].returncode not in (0, None)
    assert "error: process 0 of 2 ends, as another one has died" in error
    pair[1].communicate()
    # Resumed by two, stopped again, finished by one: the device count may change.
    pair = start_two(together, *options, "--resume")
    wait_for_checkpoint_after(together, newest_checkpoint(together), pair)
    pair[1].send_signal(signal.SIGTERM)
    for process in pair:
        process.communicate(timeout=120)
    finish(start(together, *options, "--resume"))
    expected, found = (json.loads((folder / "summary.json").read_text()) for folder in (alone, together))
    assert found["epochs"] == expected["epochs"] == 30
    assert found["test_loss"] == pytest.approx(expected["test_loss"], abs=1e-3)
    assert found["test_micro_f1"] == pytest.approx(expected["test_micro_f1"], abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [1, 0], ids=["a worker", "the coordinator"])
def test_a_frozen_process_ends_the_other_with_one_line(frozen, tmp_path):
    """Within the heartbeat's limit; without it the runtime aborts with a native stack."""
    folder = tmp_path / "run"
    options = ("--training.epochs=100000", "--training.checkpoint_every_s=0.5", "--distributed.heartbeat_timeout_s=10")
    pair = start_two(folder, *options)
    try:
        wait_for_checkpoint_after(folder, "", pair)
        pair[frozen].send_signal(signal.SIGSTOP)
        error = pair[1 - frozen].communicate(timeout=60)[1]
    finally:
        for process in pair:
            process.kill()
    pair[frozen].communicate()
    assert pair[1 - frozen].returncode == 1, error
    (line,) = (line for line in error.splitlines() if line.startswith("error: "))
    assert line.startswith(f"error: process {1 - frozen} of 2 ends, as another one has died")
    assert f"what is left is checkpoint {folder / 'checkpoints' / newest_checkpoint(folder)}" in line
    assert line.endswith(f"continue all of them with --resume --run.dir {folder}")
    assert "terminate called" not in error
    assert "Traceback" not in error
