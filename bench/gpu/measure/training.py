"""Training from the command on the device: a run, its resumption, and predictions of it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.gpu.measure.timing import measuring
from bench.gpu.measure.worker import Run
from bench.record import ROOT

EPOCHS = 20


def rows(run: Run, case: str) -> Iterator[dict[str, Any]]:
    """A row a command: seconds from its start to its end, and what the run's summary says."""
    model, _, dataset = case.partition("-")
    folder = run.folder / "training" / case
    train = ["jhgnn.train", "--config", str(ROOT / "configs" / f"{model}_{dataset}.toml")]
    train += ["--run.dir", str(folder), "--data.scale", str(run.sizes.scale)]
    commands = {
        "train": [*train, "--training.epochs", str(EPOCHS)],
        "resume": [*train, "--training.epochs", str(2 * EPOCHS), "--resume"],
        "predict": ["jhgnn.predict", "--run", str(folder)],
    }
    for name, command in commands.items():
        with measuring(run.folder):
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
            seconds = time.perf_counter() - start
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {last[:300]}")
        row: dict[str, Any] = {"kind": "training", "case": case, "what": name, "seconds": seconds}
        if name != "predict":
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            row |= {key: summary.get(key) for key in ("device", "epochs", "epoch_ms", "compile_s", "test_micro_f1")}
        yield row
