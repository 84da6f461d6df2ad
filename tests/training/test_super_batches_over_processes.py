"""Two processes over gloo that reuse rows of hot vertices: results, kills, a failure of one helper, rows too old."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pytest

from jhgnn import partition
from jhgnn.config import DistributedConfig
from jhgnn.config.recipe import load_recipe
from jhgnn.training.checkpoint import Checkpoint, CheckpointStore
from jhgnn.training.execution import Execution
from jhgnn.training.prepare import prepare
from tests.runtime.test_processes import (
    ROOT,
    environment,
    finish,
    free_address,
    newest_checkpoint,
    wait_for_checkpoint_after,
)

pytestmark = [pytest.mark.usefixtures("compile_cache"), pytest.mark.slow]

CLOSE = 1e-6
GRAPH = ["--data.preset=mag", "--data.scale=0.0005"]
"""Authors, institutions and fields learn their rows."""
RECIPE = [
    *GRAPH,
    "--model.name=rgcn",
    "--model.layers=2",
    "--model.hidden=8",
    "--model.dropout=0.3",
    "--sampling.batch_size=48",
    "--sampling.fan_out=3,2",
    "--sampling.hot=stale",
    "--sampling.hot_share=0.3",
    "--sampling.super_batch=3",
    "--training.optimizer=sgd",
    "--training.learning_rate=0.05",
    "--training.patience=0",
    "--training.epochs=100",
    "--run.tensorboard=false",
    "--distributed.devices=1",
]
STOP = "--sampling.max_steps=11"
"""In mid-super-batch."""
TRAIN = ("-m", "jhgnn.train")


def start(folder: Path, *options: str, program: Sequence[str] = TRAIN) -> subprocess.Popen:
    command = [sys.executable, *program, *RECIPE, f"--run.dir={folder}", *options]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)


def start_two(
    folder: Path, *options: str, each: Sequence[Sequence[str]] = ((), ()), program: Sequence[str] = TRAIN
) -> list[subprocess.Popen]:
    where = [f"--distributed.coordinator={free_address()}", "--distributed.num_processes=2"]
    return [
        start(folder, *where, *options, *each[number], f"--distributed.process_id={number}", program=program)
        for number in range(2)
    ]


def execution_of(run: Path) -> Execution:
    """The same on one device with whole tables."""
    distributed = DistributedConfig(devices=1)
    return prepare(dataclasses.replace(load_recipe(run / "recipe.toml"), distributed=distributed), progress=False)


def checkpoint_of(run: Path) -> Checkpoint:
    return CheckpointStore(run / "checkpoints").load(execution_of(run).saved_state)


def gap(found: Checkpoint, expected: Checkpoint) -> float:
    """The largest difference of any number of states, rows that are kept among them, that are as far in training."""
    assert (found.progress.epoch, found.progress.step) == (expected.progress.epoch, expected.progress.step)
    assert found.state.hot
    gaps = jax.tree.map(
        lambda a, b: float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0)),
        found.state,
        expected.state,
    )
    return max(jax.tree.leaves(gaps))


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "two"
    assert partition.main([*GRAPH, "--parts=2", "--method=random", f"--out={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Checkpoint:
    """Of one process on one device with whole tables."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    finish(start(folder, STOP))
    return checkpoint_of(folder)


LAYOUTS = [pytest.param("whole", marks=pytest.mark.long), pytest.param("data", marks=pytest.mark.long), "parts"]
"""Whole tables; rows that are cut; the same where each process reads its own part of the features alone."""


SLOW = """
import sys, time
from jhgnn.training.super_batches import SuperBatches
kept = SuperBatches.kept
def slow(self, *others):
    time.sleep(0.5)
    return kept(self, *others)
SuperBatches.kept = slow
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


def options_of(layout: str, parts: Path) -> list[str]:
    if layout == "whole":
        return []
    return [f"--distributed.parts={parts}", "--distributed.strategy=owner", f"--distributed.read={layout}"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_processes_train_as_one_and_alike_without_threads_and_after_a_kill(layout, parts, alone, tmp_path):
    options = options_of(layout, parts)
    finish(*start_two(tmp_path / "run", STOP, *options))
    expected = checkpoint_of(tmp_path / "run")
    assert gap(expected, alone) < CLOSE
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["processes"] == 2
    assert summary["compilations_after_warm_up"] == 0
    assert (summary.get("hot_fetched_bytes", 0) > 0) == (layout != "whole")
    # Threads of each process are its own affair.
    finish(*start_two(tmp_path / "inline", STOP, *options, each=[["--sampling.prefetch_threads=0"], []]))
    assert gap(checkpoint_of(tmp_path / "inline"), expected) == 0
    # A run that is killed goes on as if it had not been.
    killed = tmp_path / "killed"
    pair = start_two(killed, STOP, *options, "--training.checkpoint_every_s=0.01", program=["-c", SLOW])
    wait_for_checkpoint_after(killed, "", pair)
    pair[1].kill()
    error = pair[0].communicate(timeout=60)[1]
    assert "process 0 of 2 ends, as another one has died" in error
    pair[1].communicate()
    assert newest_checkpoint(killed) < newest_checkpoint(tmp_path / "run")
    finish(*start_two(killed, STOP, *options, "--resume"))
    assert gap(checkpoint_of(killed), expected) == 0


BROKEN = """
import sys
from jhgnn.training.super_batches import SuperBatches
make = SuperBatches._make
def broken(self, number, *others):
    if number == 3 and sys.argv[-1].endswith("WHO"):
        raise ArithmeticError("torn")
    return make(self, number, *others)
SuperBatches._make = broken
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("who", "layout"), [pytest.param(0, "whole", marks=pytest.mark.long), (1, "data")])
def test_a_helper_that_fails_in_one_process_ends_both(who, layout, parts, tmp_path):
    program = ["-c", BROKEN.replace("WHO", str(who))]
    errors = finish(*start_two(tmp_path / "run", *options_of(layout, parts), STOP, program=program), code=1)
    assert f"process {who} of 2 ends, as it failed (LoaderError: rows of hot vertices" in errors[who]
    assert "ArithmeticError: torn" in errors[who]
    told = f"rows of hot vertices could not be computed by process {who}, which says why"
    assert told in errors[1 - who] or "as another one has died" in errors[1 - who]
    assert all("--resume" in error for error in errors)


OLD = """
import dataclasses, sys
from jhgnn.training.super_batches import SuperBatches
merged = SuperBatches._merged
def old(self, base, ahead):
    found = merged(self, base, ahead)
    if self._number < 1:
        return found
    return {name: dataclasses.replace(each, versions=each.versions - 4) for name, each in found.items()}
SuperBatches._merged = old
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.parametrize("layout", ["whole", "parts"])
def test_rows_that_are_too_old_end_both(layout, parts, tmp_path):
    errors = finish(*start_two(tmp_path / "run", *options_of(layout, parts), STOP, program=["-c", OLD]), code=1)
    assert any("NonFiniteLossError" in error and "are not below 6 updates old" in error for error in errors), errors


def test_pieces_have_one_size_in_all_processes(tmp_path):
    each = [["--sampling.prefetch_memory_gib=1"], ["--sampling.prefetch_memory_gib=2"]]
    for error in finish(*start_two(tmp_path / "run", STOP, each=each), code=2):
        assert "sampling.prefetch_memory_gib is 1.0 in process 0, but 2.0 in process 1" in error
