"""Processes that each measure an item: started together, read as they tell, and ended when their time is over."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.measure.items import Item
from bench.record import ROOT

LAST_LINES = 6
"""Of what a failed process said that the results keep."""


@dataclasses.dataclass
class Outcome:
    """What became of an item.

    Attributes:
        status: `done`, `failed` or `out of time`.
        why: the last lines that a failed process said.
        seconds: that its process took.
    """

    status: str
    why: str
    seconds: float


def measure_together(
    items: Sequence[Item],
    folder: Path,
    environment: Mapping[str, str],
    left_s: float,
    *,
    rehearsal: bool,
    take: Callable[[Item, dict[str, Any]], None],
) -> dict[str, Outcome]:
    """Runs a group of items, each in a process of its own, none longer than its limit or `left_s`.

    `take` gets each row as it is told, by one thread at a time.
    """
    lock, outcomes = threading.Lock(), dict[str, Outcome]()

    def one(item: Item) -> None:
        def told(row: dict[str, Any]) -> None:
            with lock:
                take(item, row)

        limit_s = min(item.limit_s, left_s)
        outcomes[item.name] = _measure(item, folder, environment, limit_s, rehearsal, told)

    threads = [threading.Thread(target=one, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _measure(
    item: Item,
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    rehearsal: bool,
    take: Callable[[dict[str, Any]], None],
) -> Outcome:
    request = {"module": item.module, "arguments": dict(item.arguments), "folder": str(folder), "rehearsal": rehearsal}
    start, over = time.monotonic(), threading.Event()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.gpu.measure.worker", json.dumps(request)],
            cwd=ROOT,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that what it started ends with it
        )

        def end() -> None:
            over.set()
            _end(process)

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.endswith("\n"):  # else its process was ended as it wrote
                        take(json.loads(line))
        finally:
            timer.cancel()
            _end(process)
        seconds = time.monotonic() - start
        if over.is_set():
            return Outcome("out of time", f"ended after {limit_s:.0f} s", seconds)
        if process.returncode:
            errors.seek(0)
            lines = [line.rstrip() for line in errors.read().splitlines() if line.strip()]
            return Outcome("failed", "\n".join(lines[-LAST_LINES:])[-2000:], seconds)
    return Outcome("done", "", seconds)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process with all that it started; what has ended already is left alone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
