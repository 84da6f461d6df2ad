"""Two real processes that were started differently, or of which one is slow or does not read what it is sent."""

import ctypes
import dataclasses
import fcntl
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from jhgnn.data import load, save_graph
from tests.runtime.test_processes import finish, newest_checkpoint, start_two, wait_for_checkpoint_after

pytestmark = [pytest.mark.usefixtures("compile_cache"), pytest.mark.slow]

WITHIN_S = 60
T = TypeVar("T")
OTHER_VERSION = """
import sys
from importlib import metadata
version = metadata.version
if sys.argv[-1].endswith("1"):
    metadata.version = lambda name: "0.0.1" if name == "jax" else version(name)
from jhgnn.train import main
sys.exit(main(sys.argv[1:]))
"""


def the_lines(pair: Sequence[subprocess.Popen], folder: Path, *, code: int = 2) -> list[str]:
    """The error line of each; all have ended within a minute of now, and no run was left that they did not find."""
    began = time.monotonic()
    errors = finish(*pair, code=code)
    assert time.monotonic() - began < WITHIN_S
    assert not list(folder.glob("checkpoints/*"))
    lines = []
    for error in errors:
        assert "Traceback" not in error
        assert "Terminating process" not in error
        (line,) = (line for line in error.splitlines() if line.startswith("error: "))
        lines.append(line)
    return lines


def test_another_recipe(tmp_path):
    folder = tmp_path / "run"
    pair = start_two(folder, each=[["--model.dropout=0.2"], ["--model.dropout=0.3"]])
    line = "error: the processes differ: model.dropout is 0.2 in process 0, but 0.3 in process 1; start all of them"
    assert all(each.startswith(line) for each in the_lines(pair, folder))
    assert not folder.exists()  # so that the same command works once it is mended


@pytest.mark.long
def test_another_version(tmp_path):
    pair = start_two(tmp_path / "run", program=["-c", OTHER_VERSION])
    lines = the_lines(pair, tmp_path / "run")
    assert all("the processes differ: jax is " in line and "but 0.0.1 in process 1" in line for line in lines)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, Path]:
    """A graph, and a copy of it in which one number of one feature is another."""
    folder, graph = tmp_path_factory.mktemp("data"), load("synthetic", "acm", scale=0.1)
    other = graph.features["paper"].copy()
    values = other if isinstance(other, np.ndarray) else other.data
    values.reshape(-1)[7] += 0.5
    changed = dataclasses.replace(graph, features={**graph.features, "paper": other})
    return save_graph(graph, folder / "one"), save_graph(changed, folder / "other")


def on(path: Path) -> list[str]:
    return ["--data.format=jhgnn", f"--data.path={path}", "--data.scale=1"]


def test_other_data(tmp_path, data):
    folder = tmp_path / "run"
    for line in the_lines(start_two(folder, each=[on(data[0]), on(data[1])]), folder):
        assert line.startswith("error: the processes differ: features of 'paper' is ")
        assert "in process 0, but " in line
    assert not folder.exists()


def test_data_that_one_of_them_does_not_have(tmp_path, data):
    folder, missing = tmp_path / "run", tmp_path / "nowhere"
    first, second = the_lines(start_two(folder, each=[on(data[0]), on(missing)]), folder)
    assert str(missing) in second
    assert first == f"error: process 1 cannot begin: {second.removeprefix('error: ')}"


@pytest.mark.long
def test_one_that_should_resume_and_one_that_should_not(tmp_path):
    folder = tmp_path / "run"
    first, second = the_lines(start_two(folder, each=[[], ["--resume"]]), folder)
    assert second == f"error: --resume: {folder} holds no run (no recipe.toml); leave --resume out to start one"
    assert first == f"error: process 1 cannot begin: {second.removeprefix('error: ')}"


@pytest.mark.long
def test_another_number_of_processes(tmp_path):
    pair = start_two(tmp_path / "run", each=[[], ["--distributed.num_processes=3"]])
    for line in the_lines(pair, tmp_path / "run"):
        assert "distributed.num_processes is 2 in process 0, but 3 in process 1" in line


@pytest.mark.long
def test_a_process_that_pauses_for_less_than_the_limit_is_waited_for(tmp_path):
    folder = tmp_path / "run"
    pair = start_two(folder, "--training.epochs=100000", "--training.checkpoint_every_s=0.5")
    try:
        for number in (1, 0):
            wait_for_checkpoint_after(folder, newest_checkpoint(folder), pair)
            pair[number].send_signal(signal.SIGSTOP)
            time.sleep(6)
            pair[number].send_signal(signal.SIGCONT)
        wait_for_checkpoint_after(folder, newest_checkpoint(folder), pair)
        pair[0].send_signal(signal.SIGTERM)
    finally:
        finish(*pair, code=128 + signal.SIGTERM)


CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1


def in_a_narrow_network(act: Callable[[], T]) -> T:
    """Calls it in a thread whose child processes have a loopback of their own, with socket buffers of a few KiB."""

    def enter_and_act() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            pytest.skip("needs the right to make a network namespace")
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
        for name in ("tcp_rmem", "tcp_wmem"):
            Path("/proc/sys/net/ipv4", name).write_text("4096 16384 16384")
        return act()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter_and_act).result()


@pytest.mark.long
def test_a_process_that_reads_nothing_more_ends_the_other_though_its_buffers_are_full(tmp_path):
    folder = tmp_path / "run"
    options = ("--model.hidden=64", "--training.checkpoint_every_s=0.5", "--distributed.heartbeat_timeout_s=10")
    pair = in_a_narrow_network(lambda: start_two(folder, *options, "--training.epochs=100000"))
    try:
        wait_for_checkpoint_after(folder, "", pair)
        began = stop_with_full_buffers(pair)
        error = pair[0].communicate(timeout=WITHIN_S)[1]
        assert time.monotonic() - began < WITHIN_S
    finally:
        for process in pair:
            process.kill()
            process.communicate()
    assert pair[0].returncode == 1, error
    (line,) = (line for line in error.splitlines() if line.startswith("error: "))
    assert line.startswith("error: process 0 of 2 ends, as another one has died")
    left = newest_checkpoint(folder)
    assert f"what is left is checkpoint {folder / 'checkpoints' / left}" in line
    assert line.endswith(f"continue all of them with --resume --run.dir {folder}")
    epochs = int(left.split("-")[1]) + 1
    errors = finish(*start_two(folder, *options, "--resume", f"--training.epochs={epochs}"))
    assert "resumed after epoch" in errors[0]


def stop_with_full_buffers(pair: Sequence[subprocess.Popen]) -> float:
    """Stops the second process while the first has much to send to it; gives the time at which it was stopped.

    Stopped between reading and answering, it has taken all that the first one had: it goes on, and is stopped again.
    """
    for _ in range(20):
        pair[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        while time.monotonic() - began < 2:
            if unsent_bytes(pair[0].pid) >= 8192:
                return began
            time.sleep(0.1)
        pair[1].send_signal(signal.SIGCONT)
        time.sleep(0.3)
    raise AssertionError("the buffers did not fill")


def unsent_bytes(pid: int) -> int:
    """The most that waits in a socket of a process's network to be sent, by the kernel's table of connections."""
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    return max(int(line.split()[4].split(":")[0], 16) for line in lines)
