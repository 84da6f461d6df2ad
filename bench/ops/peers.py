"""DGL and PyG for `bench.ops`, in a process of their own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from bench.ops.contenders import Contender
from bench.record import ROOT
from jhgnn.graph.semantic_graph import SemanticGraph
from jhgnn.runtime.step_memory import kept_by_environment


class Peers:
    """DGL and PyG in a process of their own."""

    def __init__(self, python: Path, threads: int) -> None:
        environment = dict(os.environ) | {"OMP_NUM_THREADS": str(threads), "DGLBACKEND": "pytorch"}
        environment |= kept_by_environment(environment)
        self._process = subprocess.Popen(
            [python, "-m", "bench.ops.peers_worker", str(threads)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.versions = self._answer()

    def load(self, graph: SemanticGraph, folder: Path) -> None:
        receivers = np.repeat(np.arange(graph.num_targets), np.diff(graph.incoming.indptr))
        np.save(folder / "src.npy", graph.incoming.indices)
        np.save(folder / "dst.npy", receivers)
        (folder / "sizes.json").write_text(json.dumps([graph.num_sources, graph.num_targets]))
        self.ask(load=str(folder))

    def ask(self, **request: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the peers' process ended with status {self._process.wait(60)}")
        return json.loads(line)


def peer(peers: Peers, name: str, op: str, backward: bool) -> Contender:
    request = {"peer": name, "op": op, "backward": backward}
    peak = peers.ask(**request, peak=True)
    return Contender(lambda: float(peers.ask(**request)), {"peak_mib": round(peak / 2**20, 1)})
