"""Processes that SLURM or Open MPI started find each other by their environment alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jhgnn.config import DistributedConfig
from jhgnn.errors import InputError
from jhgnn.runtime import processes
from tests.runtime.test_processes import ROOT, SMALL, environment, finish

SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAST_PORTS = 65535 - 2**12 + 1  # where JAX looks for the coordinator, by the number of the job


@pytest.fixture
def alone(monkeypatch):
    """No launcher, and a record of what JAX was asked to join."""
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    calls: list[dict] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **known: calls.append(known))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    return calls


@pytest.mark.usefixtures("alone")
def test_a_process_without_a_launcher_stays_alone():
    assert not processes.are_several(DistributedConfig())
    assert not processes.are_several(DistributedConfig(num_processes=1))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("size", "joins"), [("1", False), ("2", True), ("64", True), ("many", False)])
def test_several_processes_of_a_launcher_join(name, size, joins, alone, monkeypatch):
    monkeypatch.setenv(name, size)
    config = DistributedConfig(heartbeat_timeout_s=7)
    assert processes.in_cluster() == processes.are_several(config) == joins
    if joins:
        processes.join(config)
        assert "coordinator_address" not in alone[0]
        assert alone[0]["heartbeat_timeout_seconds"] == 7


def test_a_coordinator_that_is_named_comes_before_the_launcher(alone, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    named = DistributedConfig(coordinator="host:1234", num_processes=2, process_id=1)
    assert processes.are_several(named)
    processes.join(named)
    assert {key: alone[0][key] for key in ("coordinator_address", "num_processes", "process_id")} == {
        "coordinator_address": "host:1234",
        "num_processes": 2,
        "process_id": 1,
    }
    assert not processes.are_several(DistributedConfig(coordinator="host:1234", num_processes=1, process_id=0))


def test_a_launcher_that_says_too_little_is_one_line(alone, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")

    def refuse(**_):
        raise ValueError("coordinator_address should\nbe defined.")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    expected = r"started several processes.*\(coordinator_address should be defined\.\); give distributed\.coordinator"
    with pytest.raises(InputError, match=expected):
        processes.join(DistributedConfig())


def free_job() -> int:
    """A job number whose port nobody listens on; tests that run beside this one begin to look elsewhere."""
    first = 100 * os.getpid()
    for job in range(first, first + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", LAST_PORTS + job % 2**12)) != 0:
                return job
    raise AssertionError("no free port")


def slurm(job: int, number: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number), "SLURM_STEP_NUM_NODES": "1",
    }  # fmt: skip


def open_mpi(job: int, number: int) -> dict[str, str]:
    return {
        "OMPI_MCA_orte_hnp_uri": f"{job * 2**12}.0;tcp://127.0.0.1:34911", "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
    }  # fmt: skip


def start(folder: Path | None, launcher: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "jhgnn.train", *SMALL, "--training.epochs=2"]
    command += [f"--run.dir={folder}"] if folder else []
    return subprocess.Popen(command, cwd=ROOT, env=environment() | launcher, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [slurm, open_mpi])
def test_two_processes_of_a_launcher_train_together(launcher, tmp_path):
    job = free_job()
    finish(*(start(tmp_path / "run", launcher(job, number)) for number in range(2)))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["processes"] == 2
    assert summary["devices"] == 2


@pytest.mark.slow
def test_processes_of_a_launcher_need_one_run_folder():
    job = free_job()
    pair = [start(None, slurm(job, number)) for number in range(2)]
    errors = finish(*pair, code=2)
    assert all("several processes need run.dir" in error for error in errors)
