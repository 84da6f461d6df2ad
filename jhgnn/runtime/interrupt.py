"""SIGINT and SIGTERM end a run after the epoch at hand, with a checkpoint; a second one ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StopRequest:
    """Which signal asked the run to end, if any did."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into a request; the second one acts as if nothing had been installed.

    Outside the main thread, where Python installs no handlers, nothing is caught.
    """
    request = StopRequest()
    previous: dict[signal.Signals, Any] = {}

    def ask(number: int, _frame: FrameType | None) -> None:
        request.signal = signal.Signals(number)
        for each, handler in previous.items():
            signal.signal(each, handler)

    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            previous[each] = signal.signal(each, ask)
    try:
        yield request
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
