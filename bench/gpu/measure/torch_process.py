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

ASK_S = 60.0


def interpreter() -> tuple[Path, str]:
    """The interpreter with PyTorch and PyG, that of the peers' environment or this one; or why there is none."""
    said = ""
    for python in dict.fromkeys((peers_python(), Path(sys.executable))):
        if not python.exists():
            continue
        command = [str(python), "-W", "ignore", "-c", "import torch, torch_geometric"]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            return python, ""
        said = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
    return Path(), f"PyTorch and PyG are left out: {said}"


class TorchProcess:
    """The process; `missing` says why there is none. One that ends or takes too long is started anew."""

    def __init__(self, folder: Path, *, rehearsal: bool) -> None:
        self.python, self.missing = interpreter()
        self._folder, self._rehearsal = folder, rehearsal
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One request.

        Raises:
            WorkerError: it failed, or there was no answer in a minute.
        """
        if self._worker is None:
            environment = {"PYTHONPATH": str(ROOT)} | ({"CUDA_VISIBLE_DEVICES": "-1"} if self._rehearsal else {})
            log = self._folder / f"torch-{os.getpid()}.log"
            command: list[str | Path] = [self.python, "-W", "ignore", "-m", "bench.gpu.measure.torch_worker"]
            self._worker = Worker(command, ROOT, environment, log)
        try:
            return self._worker.ask(do, timeout_s=ASK_S, **arguments)
        except WorkerError:
            self._close()
            raise

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
