"""PyTorch and PyG in a process of their own, where an interpreter has them."""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.comparison.environment import peers_python
from bench.comparison.protocol import Worker, WorkerError
from bench.record import ROOT

ASK_S, REHEARSED_ASK_S = 60.0, 300.0
"""Of one request at most; a rehearsal may run on a busy machine."""

IN_REHEARSAL = {"CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that spin while others compute would take minutes on a busy machine."""


def interpreter() -> tuple[Path, str]:
    """The interpreter with PyTorch and PyG, that of the peers' environment or this one; or why there is none."""
    said = ""
    for python in dict.fromkeys((peers_python(), Path(sys.executable))):
        if not python.exists():
            continue
        # Looked for and not imported, which takes seconds; what breaks at its import is told by the worker.
        code = "import importlib.util as u; print([n for n in ('torch', 'torch_geometric') if u.find_spec(n) is None])"
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
        if done.stdout.strip() == "[]":
            return python, ""
        said = f"{python.name} has no {done.stdout.strip()}"
    return Path(), f"PyTorch and PyG are left out: {said}"


class TorchProcess:
    """The process; `missing` says why there is none. One that ends or takes too long is started anew."""

    def __init__(self, folder: Path, *, rehearsal: bool) -> None:
        self.python, self.missing = interpreter()
        self._folder, self._rehearsal = folder, rehearsal
        self._worker: Worker | None = None
        self._worked = False

    def __enter__(self) -> Self:
        if not self.missing:  # it imports for seconds, while the programs of this side compile
            self._worker = self._started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One request.

        Raises:
            WorkerError: it failed, or there was no answer in time.
        """
        if self._worker is None:
            self._worker = self._started()
        try:
            answer = self._worker.ask(do, timeout_s=REHEARSED_ASK_S if self._rehearsal else ASK_S, **arguments)
            self._worked = True
            return answer
        except WorkerError as error:
            self._close()
            said = f"{error}; {_last_line(self._log)}"
            if not self._worked:  # what breaks at its first request is not started for each of the next
                self.missing = f"PyTorch and PyG are left out: {said}"
            raise WorkerError(said) from None

    @property
    def _log(self) -> Path:
        return self._folder / f"torch-{os.getpid()}.log"

    def _started(self) -> Worker:
        environment = {"PYTHONPATH": str(ROOT)} | (IN_REHEARSAL if self._rehearsal else {})
        command: list[str | Path] = [self.python, "-W", "ignore", "-m", "bench.gpu.measure.torch_worker"]
        return Worker(command, ROOT, environment, self._log)

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
