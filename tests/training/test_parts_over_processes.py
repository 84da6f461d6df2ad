"""Two and four processes over gloo: every strategy on parts trains each model as one process does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jhgnn.distributed.methods.random_parts import random_assignment
from jhgnn.distributed.writing import write_partition
from tests.models.heterographs import academic
from tests.runtime.test_processes import ROOT, environment, finish, free_address

STRATEGIES = {"rgcn": ("data", "owner", "leapgnn"), "rgat": ("data", "owner", "leapgnn"), "han": ("data", "owner")}
"""HAN averages over all targets of a batch, which LeapGNN's ring has not."""
BOUNDS = {"32": ("params", 1e-5), "64": ("gradient", 1e-12)}


def train(folder: Path, width: str, parts: Path | str, processes: int, cases: list[str]) -> None:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.training.processes_agreement", str(folder), width, str(parts)]
    each = [[*command, free_address(), str(processes)]] * processes
    running = [
        subprocess.Popen([*own, str(number), *cases], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
        for number, own in enumerate(each)
    ]
    finish(*running)


def drawn(folder: Path, case: str) -> list[set[str]]:
    """What each batch drew, on any process."""
    found: list[set[str]] = []
    for path in sorted(folder.glob(f"{case}-*.npz")):
        own = [{json.dumps(each) for each in json.loads(text)} for text in np.load(path)["drawn"].tolist()]
        found = [one | other for one, other in zip(found, own, strict=True)] if found else own
    return found


LONG = [pytest.mark.long]


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param("32", marks=LONG), "64"])
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=LONG)])
@pytest.mark.parametrize("name", ["rgcn", *(pytest.param(name, marks=LONG) for name in ("rgat", "han"))])
def test_every_strategy_trains_as_one_process(name, processes, width, tmp_path):
    graph, strategies = academic(), STRATEGIES[name]
    write_partition(graph, random_assignment(graph, processes), tmp_path / "parts")
    train(tmp_path / "one", width, "", 1, [f"{name}:data"])
    train(tmp_path / "several", width, tmp_path / "parts", processes, [f"{name}:{each}" for each in strategies])
    expected, (kind, bound) = np.load(tmp_path / "one" / f"{name}-data-0.npz"), BOUNDS[width]
    assert np.abs(expected[kind]).max() > 1e-3
    for strategy in strategies:
        for number in range(processes):
            found = np.load(tmp_path / "several" / f"{name}-{strategy}-{number}.npz")
            assert found[kind].dtype == np.dtype(f"float{width}")
            scale = np.abs(expected[kind]).max() if kind == "gradient" else 1.0
            assert np.abs(found[kind] - expected[kind]).max() / scale < bound, (strategy, number)
        assert drawn(tmp_path / "several", f"{name}-{strategy}") == drawn(tmp_path / "one", f"{name}-data"), strategy
