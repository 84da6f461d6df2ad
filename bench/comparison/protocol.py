"""A framework in a process of its own: JSON lines in, JSON lines out. Neither jax nor torch is imported here."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class WorkerError(RuntimeError):
    """A worker failed, or took longer than it may; the message says how."""


def process_peak_bytes() -> int:
    """High-water mark of this process's resident memory; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def reset_process_peak() -> int:
    """Sets the high-water mark back to what is resident now, and returns that; needs Linux's `clear_refs`."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return process_peak_bytes()


def serve(commands: Mapping[str, Callable[..., Answer]]) -> None:
    """Answers one line a request until the input ends; what the framework prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = commands[request.pop("do")](**request)
        except Exception as error:  # the other side decides what a failure means
            text = str(error).strip() or type(error).__name__
            answer = {"error": f"{type(error).__name__}: {text.splitlines()[0][:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Worker:
    """The other end: starts a process, asks, and ends it."""

    def __init__(self, command: Sequence[str | Path], root: Path, environment: Mapping[str, str], log: Path) -> None:
        self._root, self._log = root, log.open("ab")
        self._process = subprocess.Popen(
            list(map(str, command)),
            cwd=root,
            env=dict(os.environ) | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, do: str, *, timeout_s: float, **arguments: Any) -> Answer:
        """One request.

        Raises:
            WorkerError: it answered with an error, ended, or exceeded `timeout_s` and was killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timed_out = threading.Event()

        def kill() -> None:
            timed_out.set()
            self._process.kill()

        timer = threading.Timer(timeout_s, kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if timed_out.is_set():
            raise WorkerError(f"{do}: not done within {timeout_s:.0f} s")
        if not line:
            status = self._process.wait(60)
            ended = f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"
            raise WorkerError(f"{do}: the process {ended}; see {os.path.relpath(self._log.name, self._root)}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
