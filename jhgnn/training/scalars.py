"""TensorBoard scalars of a run."""

import contextlib
import os
import time
from pathlib import Path


class Scalars:
    """Writes an event file in the thread that calls, so that a disk that fails is told there.

    TensorBoard's usual writers have a thread of their own, which a full disk ends with a traceback; the run then waits
    for it without end.

    Raises:
        OSError: the file cannot be written; so do all methods but `close`.
    """

    def __init__(self, folder: Path, *, purge_step: int | None) -> None:
        """Begins a file; scalars of earlier files at `purge_step` and after it are no longer shown."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        self._events = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}.{time.monotonic_ns()}")
        if purge_step is not None:
            session = SessionLog(status=SessionLog.START)
            self._events.write_event(Event(wall_time=time.time(), step=purge_step, session_log=session))

    def add(self, name: str, value: float, step: int) -> None:
        """One value."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        self._events.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))

    def flush(self) -> None:
        """Everything written so far reaches the disk."""
        self._events.flush()

    def close(self) -> None:
        """Flushes and closes, as far as there is room."""
        with contextlib.suppress(OSError):
            self._events.close()
