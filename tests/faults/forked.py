"""Commands in a child of a process that has imported everything, one after the other: what was traced stays traced.

A child is replaced after some commands, and after one that ended it. What looks wrong is to be run again in a new
child, so that no command is blamed for what an earlier one left in the process.
"""

import atexit
import ctypes
import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_S = 180
LATE = 124
"""The exit code of a command that did not end, as that of `timeout`."""
MOST_COMMANDS = 150
"""After so many a child is replaced."""


def import_everything() -> None:
    """What the commands import late, so that no child does. No JAX backend may exist when a process forks."""
    names = ("optax", "flax.nnx", "orbax.checkpoint", "matplotlib.figure", "matplotlib.backends.backend_agg")
    own = ("train", "predict", "profile", "partition", "run", "training.loop", "training.prepare", "planning.budget")
    own += ("training.reporting", "training.summary", "training.checkpoint", "training.resume", "profiling.capture")
    own += ("profiling.stages", "profiling.figures", "profiling.report", "profiling.tables", "distributed.writing")
    own += ("distributed.cutting", "distributed.quality", "distributed.quality_report", "inference.predictor")
    for name in (*names, *(f"jhgnn.{each}" for each in own)):
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads are there; a fork would copy one of them"


class Answer(NamedTuple):
    """How a command ended.

    Attributes:
        code: exit code; 128 + n where signal n ended the process, `LATE` where it had to be ended.
        text: what it said on both streams.
        result: what was read afterwards; None where nothing was to be read, or could be.
    """

    code: int
    text: str
    result: Any


class Worker:
    """Children that run commands, one at a time.

    Args:
        folder: for what the commands say.
        read: what is to be known of the files after a command, in terms of JSON; called without faults.
    """

    def __init__(self, folder: Path, read: Callable[[], Any]) -> None:
        self._said, self._read = folder / "said", read
        self._child = self._commands = 0
        self._to = self._back = -1

    def run(self, words: Sequence[str], faults: Mapping[str, str], *, read_always: bool = False) -> Answer:
        """`[COMMAND, ARGUMENT, ...]`; what it left is read where its code is 0, or always."""
        if self._commands >= MOST_COMMANDS:
            self.close()
        if not self._child:
            self._fork()
        self._commands += 1
        request = {"words": list(words), "faults": dict(faults), "read_always": read_always}
        os.write(self._to, json.dumps(request).encode() + b"\n")
        ready, _, _ = select.select([self._back], [], [], LIMIT_S)
        if not ready:
            os.kill(self._child, signal.SIGKILL)
        answer = _line(self._back)
        text = self._said.read_text(errors="replace") if self._said.exists() else ""
        if answer:
            return Answer(text=text, **json.loads(answer))
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        self._child = 0
        self._forget()
        return Answer(LATE if not ready else 128 - code if code < 0 else code, text, None)

    def close(self) -> None:
        """Ends the child; the next command gets a new one."""
        if self._child:
            self._forget()
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0

    def _forget(self) -> None:
        os.close(self._to)
        os.close(self._back)
        self._commands = 0

    def _fork(self) -> None:
        requests, answers = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(requests[1])
            os.close(answers[0])
            self._serve(requests[0], answers[1])
        os.close(requests[0])
        os.close(answers[1])
        self._to, self._back = requests[1], answers[0]

    def _serve(self, requests: int, answers: int) -> None:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _keep_programs()
            while line := _line(requests):
                output = os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.close(output)
                answer = self._answer(**json.loads(line))
                os.write(answers, json.dumps(answer).encode() + b"\n")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)

    def _answer(self, words: list[str], faults: dict[str, str], read_always: bool) -> dict[str, Any]:
        with _as_new():
            _plan(faults)
            try:
                code = int(importlib.import_module(f"jhgnn.{words[0]}").main(words[1:]))
            except BaseException:
                traceback.print_exc()
                code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        _plan(dict.fromkeys(faults, ""))
        result = None
        if code == 0 or read_always:
            try:
                result = self._read()
            except Exception:  # there is nothing, or half of it
                result = None
        return {"code": code, "result": result}


def _plan(faults: Mapping[str, str]) -> None:
    """Tells the library."""
    os.environ.update(faults)
    ctypes.CDLL(None).fault_reload()


def _line(handle: int) -> bytes:
    """Up to a line's end; nothing where the other side is gone."""
    found = b""
    while not found.endswith(b"\n"):
        piece = os.read(handle, 1 << 16)
        if not piece:
            return b""
        found += piece
    return found


def _keep_programs() -> None:
    """Equal programs are compiled once in a process. Compiling reads and writes none of the files that count here."""
    from jhgnn.config.recipe import to_toml
    from jhgnn.training.whole_graph import WholeGraph
    from jhgnn.training.whole_graph_programs import WholeGraphPrograms

    made: dict[str, Any] = {}
    compile_anew = WholeGraph.compile

    def compile_once(self: WholeGraph) -> WholeGraphPrograms:
        key = "".join(line for line in to_toml(self.config).splitlines() if not line.startswith(("dir", "epochs")))
        if key not in made:
            made[key] = compile_anew(self)
        return WholeGraphPrograms(self, made[key].steps, made[key].evaluations)

    WholeGraph.compile = compile_once  # type: ignore[method-assign]


@contextmanager
def _as_new() -> Iterator[None]:
    """What a command changes in its process is as before afterwards; what it registers for the end is called then."""
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    filters = {name: list(logging.getLogger(name).filters) for name in ("", "absl", "jax")}
    endings: list[Callable[[], Any]] = []
    register = atexit.register

    def at_end(function: Callable[..., Any], *arguments: Any, **more: Any) -> Callable[..., Any]:
        endings.append(lambda: function(*arguments, **more))
        return function

    atexit.register = at_end  # type: ignore[assignment]
    try:
        yield
        for ending in reversed(endings):
            try:
                ending()
            except Exception:
                traceback.print_exc()
    finally:
        atexit.register = register
        sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
        for name, before in filters.items():
            logging.getLogger(name).filters[:] = before
