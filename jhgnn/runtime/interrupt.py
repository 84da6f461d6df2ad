"""SIGINT and SIGTERM: between steps they end a run after the one at hand, with a checkpoint; else the command at once.

Python's own handlers run between two of its instructions, so that a program that XLA compiles for minutes would have to
be waited for. What ends a command at once is therefore a thread that the signal itself wakes.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    waker = signal.set_wakeup_fd(-1)
    previous: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for each, handler in previous.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def ask(number: int, _frame: FrameType | None) -> None:
        request.signal = signal.Signals(number)
        restore()

    for each in SIGNALS:
        previous[each] = signal.signal(each, ask)
    try:
        yield request
    finally:
        restore()


class Leaving:
    """What a command says and does where a signal ends it at once.

    Attributes:
        line: what is lost and what is left, for a person.
        tidy: is called before.
    """

    def __init__(self, line: str) -> None:
        self.line = line
        self.tidy: Callable[[], None] = lambda: None

    @contextmanager
    def during(self, line: str, tidy: Callable[[], None]) -> Iterator[None]:
        """Another line and another tidying inside."""
        before = self.line, self.tidy
        self.line, self.tidy = line, tidy
        try:
            yield
        finally:
            self.line, self.tidy = before

    def now(self, number: int) -> NoReturn:
        """Ends the process with 128 and the signal's number, whatever its other threads are in the middle of."""
        with contextlib.suppress(Exception):
            self.tidy()
        with contextlib.suppress(OSError):
            os.write(2, f"{signal.Signals(number).name}: {self.line}\n".encode())
        os._exit(128 + number)


@contextmanager
def leaving_on_signals(line: str) -> Iterator[Leaving]:
    """Ends the command at once on SIGINT or SIGTERM, in the middle of tracing and compiling too.

    Outside the main thread nothing is caught. A signal that the command was started to ignore stays ignored.
    """
    leaving = Leaving(line)
    heard = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread() or not heard:
        yield leaving
        return
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)

    def listen() -> None:
        while number := os.read(ear, 1):
            if number[0] in heard:
                leaving.now(number[0])
            if number[0] == 0:
                return

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    waker = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    previous = {each: signal.signal(each, lambda *_: None) for each in heard}
    try:
        yield leaving
    finally:
        signal.set_wakeup_fd(waker)
        for each, handler in previous.items():
            signal.signal(each, handler)
        os.write(mouth, b"\0")
        listener.join()
        os.close(mouth)
        os.close(ear)
