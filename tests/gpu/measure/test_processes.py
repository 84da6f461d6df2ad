"""Items end when their time is over, with all that they started; what they told stays."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.measure import processes
from bench.gpu.measure.items import Item

TELLS_THEN = """
import json, subprocess, sys, time
print(json.dumps({"n": 1}), flush=True)
then = json.loads(sys.argv[-1])["arguments"]["then"]
if then == "sleeps":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(json.dumps({"child": child.pid}), flush=True)
    sys.stdout.write('{"half": ')
    sys.stdout.flush()
    time.sleep(60)
if then == "fails":
    sys.exit("error: what went wrong")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another module in the place of the one that measures."""
    (tmp_path / "bench" / "gpu" / "measure").mkdir(parents=True)
    for folder in ("bench", "bench/gpu", "bench/gpu/measure"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "bench" / "gpu" / "measure" / "worker.py").write_text(TELLS_THEN)
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    return tmp_path


def measure(folder: Path, limits: dict[str, float], left_s: float = 60.0) -> tuple[dict[str, Any], list[dict]]:
    rows: list[dict] = []
    items = [Item(then, "any", limit_s, {"then": then}) for then, limit_s in limits.items()]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = processes.measure_together(
        items, folder, environment, left_s, rehearsal=True, take=lambda item, row: rows.append({"of": item.name} | row)
    )
    return found, rows


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its entry until somebody asks how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_of_a_group_each_ends_as_it_ends(stand_in: Path) -> None:
    start = time.monotonic()
    found, rows = measure(stand_in, {"ends": 30.0, "fails": 30.0, "sleeps": 2.0})
    assert time.monotonic() - start < 20
    assert {name: outcome.status for name, outcome in found.items()} == {
        "ends": "done",
        "fails": "failed",
        "sleeps": "out of time",
    }
    assert found["fails"].why == "error: what went wrong"
    assert sorted(row["of"] for row in rows if "n" in row) == ["ends", "fails", "sleeps"]
    (child,) = [row["child"] for row in rows if "child" in row]
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_no_item_outlasts_the_budget(stand_in: Path) -> None:
    found, rows = measure(stand_in, {"sleeps": 50.0}, left_s=1.0)
    assert found["sleeps"].status == "out of time"
    assert found["sleeps"].seconds < 10
    assert "half" not in rows[-1]
