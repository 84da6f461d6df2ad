"""Keeps the tracebacks of a library's background threads from the terminal, where their error is raised and told."""

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _WithoutTracebacks(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None and record.levelno < logging.WARNING


def _main_alone(hook: Callable[..., Any]) -> Callable[..., Any]:
    """What Python or a C++ library reports from other threads is not printed."""

    def filtered(*arguments: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            hook(*arguments)

    return filtered


@contextmanager
def quiet_threads(*loggers: str) -> Iterator[None]:
    """Inside, threads that end by an error say nothing, and neither do these loggers by warnings and errors.

    For calls that raise what their threads met; after such an error it stays quiet, since others may still meet it.
    """
    of_threads, of_python, of_deletion = threading.excepthook, sys.excepthook, sys.unraisablehook
    quiet = _WithoutTracebacks()
    threading.excepthook = lambda _: None
    sys.excepthook = _main_alone(of_python)
    sys.unraisablehook = lambda _: None  # of event loops that were thrown away half made, in the main thread too
    for name in loggers:
        logging.getLogger(name).addFilter(quiet)
    try:
        yield
    except BaseException:  # what its event loops had begun is thrown away at the process's end, unless before
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise
    threading.excepthook, sys.excepthook, sys.unraisablehook = of_threads, of_python, of_deletion
    for name in loggers:
        logging.getLogger(name).removeFilter(quiet)
