"""A sample of the points of `python -m tests.faults.enumerate`, whose whole count docs/reliability.md has."""

import json
import subprocess
import sys

import pytest

from tests.commands import ROOT
from tests.faults.points import Point, points, spread
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import buildable


def test_points_are_every_operation_on_every_path():
    calls = [(1, "create", "/a"), *((number, "write", "/a") for number in range(2, 7)), (7, "read", "/b")]
    found = points(calls)
    assert Point("create", "/a", 1, "EROFS") in found
    assert {point.nth for point in found if point.operation == "write"} == {1, 3, 5}
    assert {point.way for point in found if point.operation == "read"} == {"EIO"}
    assert spread(found, 4) == [found[number * len(found) // 4] for number in range(4)]


@pytest.mark.slow
def test_no_sampled_point_loses_anything_or_shows_a_traceback(tmp_path):
    if not buildable():
        pytest.skip("needs Linux and g++")
    counts = tmp_path / "counts.json"
    command = [sys.executable, "-m", "tests.faults.enumerate", "--most", "3", "--kills", "1", "--json", str(counts)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {count["scenario"]: count for count in json.loads(counts.read_text())}
    assert found.keys() == {scenario.name for scenario in SCENARIOS}
    assert all(count["points"] >= 3 for count in found.values())
    assert all(count["kills"] >= 1 for name, count in found.items() if name != "profile")
