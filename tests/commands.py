"""The commands in this process and as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jhgnn import predict, train

ROOT = Path(__file__).parents[1]
QUIET = ("--sgb.cache_dir", "", "--run.tensorboard", "false")
"""No cache in the home folder and no event files."""


def train_arguments(data: Path, run_dir: Path, *more: str, model: str = "rgcn") -> list[str]:
    """A small model on a saved graph."""
    small = ("--model.name", model, "--model.hidden", "16", "--model.layers", "1", *QUIET)
    return ["--data.format", "jhgnn", "--data.path", str(data), "--run.dir", str(run_dir), *small, *more]


def run_train(*arguments: str) -> int:
    return train.main(list(map(str, arguments)))


def run_predict(*arguments: str) -> int:
    return predict.main(list(map(str, arguments)))


def start(module: str, *arguments: object, cwd: Path = ROOT) -> subprocess.Popen:
    """`python -m MODULE ARGUMENTS` with both streams captured."""
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    """Waits: (exit code, or 128 + n where signal n ended it; stdout; stderr)."""
    stdout, stderr = process.communicate(timeout=300)
    code = process.returncode
    return (128 - code if code < 0 else code), stdout, stderr


def wait_for_line(process: subprocess.Popen, text: str) -> None:
    """Reads stderr up to a line that holds `text`."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} did not come; the process said: {''.join(seen)}")


def send(process: subprocess.Popen, number: signal.Signals) -> None:
    process.send_signal(number)


def the_error(stderr: str) -> str:
    """The one `error: ` line, which must be the last; whatever went before it was progress."""
    lines = stderr.strip().splitlines()
    errors: Sequence[str] = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, stderr
    assert lines[-1] == errors[0], stderr
    assert "Traceback" not in stderr
    return errors[0]
