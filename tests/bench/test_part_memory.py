"""`bench.part_memory` reads the kernel's account of each process, and tells a failed one from one that has ended."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bench.part_memory import FIELDS, measure, memory_bytes, shown, watched

MIB = 2**20


def process(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], text=True, stderr=subprocess.DEVNULL)


def test_memory_of_this_process_counts_what_it_touches():
    before = memory_bytes(os.getpid())
    held = np.ones(64 * MIB, np.uint8)
    after = memory_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert set(after) == set(FIELDS)
    assert after["Anonymous"] - before["Anonymous"] > 0.9 * held.nbytes
    assert after["Pss"] <= after["Rss"]


def test_a_process_that_has_ended_has_no_memory():
    ended = process("")
    ended.wait()
    assert memory_bytes(ended.pid) is None


def test_the_largest_of_each_process_is_kept():
    code = "import time; held = bytearray(b'x' * (%d << 20)); time.sleep(2)"
    small, large = watched([process(code % 1), process(code % 100)], 0.02)
    assert large["Rss"] - small["Rss"] > 90 * MIB


def test_a_failed_process_is_an_error():
    with pytest.raises(RuntimeError, match="1 of 2 processes failed with 3"):
        watched([process(""), process("raise SystemExit(3)")], 0.02)


@pytest.mark.slow
@pytest.mark.long
def test_a_tiny_graph_is_measured(tmp_path):
    found = measure(tmp_path, 0.002, 2, "random", 1, 0.1, "partitioned")
    assert len(found["processes"]) == len(found["shares"]) == 2
    assert found["most_share"] == max(found["shares"]) > 0
    assert "part 1" in shown(found)
