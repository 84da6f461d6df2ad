"""Progress of long reads on stderr: a bar on a terminal, a line now and then elsewhere, nothing when turned off."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
QUIET_BYTES = 8_000_000
"""Files below this size are read without a word."""
SECONDS_BETWEEN_LINES = 5.0


def silent(_: int) -> None:
    """An `Advance` that says nothing."""


@contextlib.contextmanager
def reading(what: str, total_bytes: int, enabled: bool) -> Iterator[Advance]:
    """Yields a function to call with the number of bytes just read; `what` names the file."""
    if not enabled or total_bytes < QUIET_BYTES:
        yield silent
    elif sys.stderr.isatty():
        with _bar(what, total_bytes) as advance:
            yield advance
    else:
        start = last = time.monotonic()
        done = 0

        def advance(num_bytes: int) -> None:
            nonlocal done, last
            done += num_bytes
            if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                print(f"reading {what}: {100 * done / total_bytes:.0f} %", file=sys.stderr, flush=True)

        yield advance
        seconds = time.monotonic() - start
        print(f"read {what}: {total_bytes / 1e6:.1f} MB in {seconds:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(what: str, total_bytes: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total_bytes)
        yield lambda num_bytes: bar.advance(task, num_bytes)
