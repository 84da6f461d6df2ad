"""Kills one of three processes that train on parts, again and again, and resumes on 1, 2 and 4:
`python -m tests.runtime.kill_parts --kills 20 --out FOLDER`.

A tiny graph of ogbn-mag's schema, whose authors, institutions and fields learn their rows. A checkpoint is asked for
after every batch, so that many kills come while shards are written. After each kill a copy of the run goes on with
another number of processes to its end, whose parameters, optimizer state and figures are compared with those of a run
that nobody disturbed; the run itself is resumed by three processes and killed again. Prints a JSON line for each kill
and adds it to `kills.jsonl` in the folder, so that the same command goes on where it was stopped.
"""

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jhgnn import partition
from jhgnn.config import DistributedConfig
from jhgnn.config.recipe import load_recipe
from jhgnn.training.checkpoint import Checkpoint, CheckpointStore
from jhgnn.training.prepare import prepare
from tests.commands import ROOT

GRAPH = ["--data.preset=mag", "--data.scale=0.0005"]
RECIPE = [
    *GRAPH,
    "--model.name=rgcn",
    "--model.layers=2",
    "--model.hidden=8",
    "--model.dropout=0.3",
    "--sampling.batch_size=48",
    "--sampling.fan_out=3,2",
    "--sampling.evaluation=sampled",
    "--training.optimizer=sgd",
    "--training.learning_rate=0.05",
    "--training.patience=0",
    "--training.epochs=6",
    "--run.tensorboard=false",
    "--distributed.devices=1",
    "--distributed.heartbeat_timeout_s=30",
]
EVERY_BATCH = "--training.checkpoint_every_s=0.001"
"""For some seconds of training; a save takes longer than a batch."""
KILLED, RESUMED = 3, (1, 2, 4)
"""Processes."""
EQUAL = 1e-6
UP_TO_S = 2.0
"""Seconds of training before a kill, at most; drawn evenly."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of who is killed, and when")
    parser.add_argument("--out", type=Path, required=True, help="for all runs; new, or of the same command")
    options = parser.parse_args(arguments)
    found = survived(options.out, options.kills, options.seed)
    worst = max(gap for each in found for gap in each["difference"].values())
    in_save = sum(each["in_save"] for each in found)
    print(f"{len(found)} kills, {in_save} while a checkpoint was written; largest difference {worst:.2e}")
    return 0


def survived(out: Path, kills: int, seed: int = 0, resumed_by: Sequence[int] = RESUMED) -> list[dict[str, Any]]:
    """What was seen at each kill.

    Args:
        out: for all runs; where a call before was stopped, this one goes on, and its kills count.
        kills: in all.
        seed: of who is killed, and when.
        resumed_by: so many processes, each of which resumes every kill.

    Raises:
        AssertionError: something was lost, or a resumed run ended elsewhere.
    """
    log, alone = out / "kills.jsonl", out / "alone"
    if not log.exists():
        out.mkdir(parents=True)
        for count in {KILLED, *RESUMED} - {1}:
            cut = [*GRAPH, f"--parts={count}", "--method=random", f"--out={out / f'parts-{count}'}"]
            assert partition.main(cut) == 0
        finish(start(out, alone, 1, "--training.checkpoint_every_s=300"))
        log.touch()
    expected = checkpoint_of(alone)
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    for number in range(len(seen), kills):
        rng = random.Random(f"{seed} {number}")
        run = out / (seen[-1]["run"] if seen else "run-0")
        told = killed(out, run, rng)
        if told["ended"]:  # before it could be killed: another run takes its place
            run = out / f"run-{number + 1}"
            told = killed(out, run, rng)
            assert not told["ended"], "a run ends sooner than it can be killed"
        told |= {"kill": number, "run": run.name, "difference": {}}
        for processes in resumed_by:
            copy = out / f"resumed-{number}"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(run, copy)
            finish(*start_all(out, copy, processes, "--training.checkpoint_every_s=300", "--resume"))
            told["difference"][str(processes)] = difference(checkpoint_of(copy), expected)
            assert told["difference"][str(processes)] <= EQUAL, told
            np.testing.assert_allclose(figures(copy), figures(alone), atol=1e-4)
            shutil.rmtree(copy)
        with log.open("a") as lines:
            print(json.dumps(told), file=lines)
        print(json.dumps(told), flush=True)
        seen.append(told)
    return seen


def killed(out: Path, run: Path, rng: random.Random) -> dict[str, Any]:
    """Starts three processes, or resumes them, and kills one; the others end by themselves, and nothing is lost."""
    resume = ["--resume"] if (run / "recipe.toml").exists() else []
    before, victim = newest(run), rng.randrange(KILLED)
    running = start_all(out, run, KILLED, EVERY_BATCH, *resume)
    try:
        deadline = time.monotonic() + 300
        while newest(run) == before and all(each.poll() is None for each in running):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.uniform(0, UP_TO_S))
        last = newest(run)
        running[victim].send_signal(signal.SIGKILL)
        at = time.monotonic()
        ended = running[victim].wait(timeout=150) != -signal.SIGKILL
        errors = [each.communicate(timeout=150)[1] for each in running]
    finally:
        for each in running:
            each.kill()
            each.communicate()
    others = [each.returncode for number, each in enumerate(running) if number != victim]
    if ended or 0 in others:  # who ends so knows that all have trained to the end
        assert (run / "summary.json").exists(), errors
        return {"ended": True}
    waited = time.monotonic() - at
    for other, error in enumerate(errors):
        if other != victim:
            assert running[other].returncode == 1, error
            assert f"error: process {other} of {KILLED} ends, as another one has died" in error, error
    folders = sorted((run / "checkpoints").glob("epoch-*"))
    store = CheckpointStore(run / "checkpoints")
    progress = store.progress()
    assert newest(run) >= last
    assert not store.fallback
    return {
        "ended": False,
        "process": victim,
        "epoch": progress.epoch,
        "step": progress.step,
        "others_ended_s": round(waited, 1),
        "in_save": not (folders[-1] / "digests.json").exists(),
    }


def start(out: Path, run: Path, processes: int, *options: str) -> subprocess.Popen:
    """One process of so many; of several each reads its own part alone."""
    command = [sys.executable, "-m", "jhgnn.train", *RECIPE, f"--run.dir={run}"]
    if processes == 1:
        command += ["--distributed.parts=", "--distributed.strategy=data", "--distributed.read=data"]
    else:
        parts = out / f"parts-{processes}"
        command += [f"--distributed.parts={parts}", "--distributed.strategy=owner", "--distributed.read=parts"]
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=dict(os.environ) | {"JAX_PLATFORMS": "cpu"},
        stderr=subprocess.PIPE,
        text=True,
    )


def start_all(out: Path, run: Path, processes: int, *options: str) -> list[subprocess.Popen]:
    if processes == 1:
        return [start(out, run, 1, *options)]
    from tests.runtime.test_processes import free_address

    where = [f"--distributed.coordinator={free_address()}", f"--distributed.num_processes={processes}"]
    return [
        start(out, run, processes, *options, *where, f"--distributed.process_id={number}")
        for number in range(processes)
    ]


def finish(*running: subprocess.Popen) -> None:
    errors = [each.communicate(timeout=600)[1] for each in running]
    assert [each.returncode for each in running] == [0] * len(running), errors


def newest(run: Path) -> str:
    """The name of the newest complete checkpoint, which sorts as they were written; empty where there is none."""
    return max((path.parent.name for path in run.glob("checkpoints/epoch-*/digests.json")), default="")


def checkpoint_of(run: Path) -> Checkpoint:
    config = dataclasses.replace(load_recipe(run / "recipe.toml"), distributed=DistributedConfig())
    return CheckpointStore(run / "checkpoints").load(prepare(config, progress=False).abstract_state)


def difference(found: Checkpoint, expected: Checkpoint) -> float:
    """The largest one of any number of the states and best parameters; they are as far in training."""
    assert (found.progress.epoch, found.progress.step) == (expected.progress.epoch, expected.progress.step)
    assert found.progress.best_epoch == expected.progress.best_epoch
    gaps = jax.tree.map(
        lambda a, b: float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0)),
        (found.state, found.best_params),
        (expected.state, expected.best_params),
    )
    return max(jax.tree.leaves(gaps))


def figures(run: Path) -> list[tuple[float, ...]]:
    """Epoch and losses of every line of the metrics."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [tuple(line[name] for name in ("epoch", "step_loss", "val_loss")) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
