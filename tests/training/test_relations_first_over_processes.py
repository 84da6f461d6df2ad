"""Relations first in several processes over gloo: a program for each trains as one for all does, and as one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.test_processes import ROOT, finish, free_address
from tests.training.rel_processes import CASES, STEPS

pytestmark = pytest.mark.slow

CLOSE = 1e-5
FLAGS = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=1"


def start(*command: str) -> subprocess.Popen:
    known = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS}
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=known, stderr=subprocess.PIPE, text=True)


def train(folder: Path, processes: int, *cases: str) -> None:
    folder.mkdir()
    common = ["-m", "tests.training.rel_processes", str(folder), free_address(), str(processes)]
    finish(*(start(*common, str(number), *cases) for number in range(processes)))


@pytest.mark.parametrize(
    ("processes", "names"),
    [
        (2, ["owned"]),
        (2, ["cut"]),
        pytest.param(2, ["cut and divided"], marks=pytest.mark.long),
        pytest.param(3, ["cut twice"], marks=pytest.mark.long),
        pytest.param(2, ["mag", "overflow"], marks=pytest.mark.long),
        pytest.param(2, ["han", "rgat"], marks=pytest.mark.long),
        pytest.param(3, ["three", "three rgat", "divided"], marks=pytest.mark.long),
        pytest.param(4, ["mag", "han"], marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, int) else "-".join(value),
)
def test_a_program_for_each_process_trains_as_one_for_all(processes, names, tmp_path):
    """Four processes are two places on each axis. Where a batch is too large, it is so on one shard alone."""
    train(tmp_path / "one", 1, *names)
    train(tmp_path / "several", processes, *names)
    for name in names:
        alone = np.load(tmp_path / "one" / f"{name}-0.npz")
        for number in range(processes):
            own, one = (np.load(tmp_path / "several" / f"{name}-{way}-{number}.npz") for way in ("own", "one"))
            for kind in ("params", "losses"):
                assert np.abs(own[kind] - one[kind]).max() <= 1e-6, (name, number)
                assert np.abs(own[kind] - alone[kind]).max() <= CLOSE, (name, number)
            assert own["overflows"] == one["overflows"] == (STEPS if CASES[name].tiny else 0)


def run(folder: Path, *more: str, processes: int = 2) -> None:
    """A run of some processes, with their learnable rows cut."""
    recipe = [
        "-m", "jhgnn.train", "--config=configs/rgcn_mag.toml", "--data.format=synthetic", "--data.scale=0.002",
        "--sampling.batch_size=128", "--sampling.fan_out=3,2", "--distributed.strategy=raf",
        f"--distributed.relation_shards={processes}", "--training.checkpoint_every_s=0", "--training.epochs=2",
        f"--run.dir={folder}", f"--distributed.coordinator={free_address()}",
        f"--distributed.num_processes={processes}", *more,
    ]  # fmt: skip
    finish(*(start(*recipe, f"--distributed.process_id={number}") for number in range(processes)))


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.long
def test_a_run_goes_on_with_the_other_kind_of_programs(tmp_path):
    run(tmp_path / "whole", "--distributed.programs=one")
    run(tmp_path / "cut", "--sampling.max_steps=5")
    run(tmp_path / "cut", "--sampling.max_steps=0", "--resume")
    assert [summary(tmp_path / name)["programs"] for name in ("whole", "cut")] == ["one", "own"]
    for name in ("test_loss", "test_micro_f1", "val_loss", "val_micro_f1"):
        assert summary(tmp_path / "cut")[name] == pytest.approx(summary(tmp_path / "whole")[name], rel=1e-5)
