"""Keeps the tracebacks of a library's background threads from the terminal, where their error is raised and told."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _WithoutTracebacks(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None and record.levelno < logging.WARNING


@contextmanager
def quiet_threads(*loggers: str) -> Iterator[None]:
    """Inside, threads that end by an error say nothing, and neither do these loggers by warnings and errors.

    For calls that raise what their threads met; after such an error it stays quiet.
    """
    hook, quiet = threading.excepthook, _WithoutTracebacks()
    threading.excepthook = lambda _: None
    for name in loggers:
        logging.getLogger(name).addFilter(quiet)
    yield
    threading.excepthook = hook  # not after an error, which other threads may still be about to meet
    for name in loggers:
        logging.getLogger(name).removeFilter(quiet)
