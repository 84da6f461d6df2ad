"""`python -m bench.gpu run --rehearse` does on a CPU what a run does on a GPU, and marks all that it tells."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.measure.build import CUDA_VARIABLE, built, environment
from bench.gpu.measure.items import IN_REHEARSAL, Item, groups
from bench.gpu.measure.processes import measure_together
from tests.native.host_kernels import FAULTS, ROOT, build

COMMAND = [sys.executable, "-m", "bench.gpu", "run"]


def run(*arguments: str, timeout_s: float = 1900) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)


def rows_of(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for item in found["items"].values() for row in item["rows"] if row["kind"] == kind]


@pytest.mark.slow
def test_every_item_works_and_no_figure_can_be_taken_for_a_gpus(tmp_path: Path) -> None:
    out = tmp_path / "rehearsal.json"
    done = run("--rehearse", "--out", str(out))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert {name: item["status"] for name, item in found["items"].items()} == {
        item.name: "done" for group in groups(IN_REHEARSAL) for item in group
    }
    assert found["rehearsal"]
    assert "no figure here is one of a GPU" in found["label"]
    assert found["device"]["platform"] == "cpu"
    rows = [row for item in found["items"].values() for row in item["rows"]]
    assert all(row["rehearsal"] for row in rows)
    assert not [row for row in rows if "failed" in row]
    checks = rows_of(found, "conformance")
    assert {row["implementation"] for row in checks if row.get("ok")} == {"native", "bucketed"}
    assert found["summary"]["conformance"]["checks"] > 35
    assert found["summary"]["conformance"]["failed"] == []
    epochs = rows_of(found, "epoch")
    for case in IN_REHEARSAL.epoch_cases:
        by = {row["implementation"]: row for row in epochs if row["case"] == case}
        # The same update by loops over buckets and by the kernels' sources.
        assert by["auto"]["losses"] == pytest.approx(by["bucketed"]["losses"], rel=1e-4)
        assert by["bucketed"]["implementations"] == ["bucketed"]
        assert "native" in by["auto"]["implementations"]
        assert "in_a_row" in by["pyg"] or "left out" in by["pyg"]["skipped"]
    assert {row["sampling"] for row in rows_of(found, "mini-batch")} == {"host", "device"}
    assert found["summary"]["findings"]["16"]["host_over_device"].keys() == {"[25, 20]", "[10, 10]"}
    assert [row["what"] for row in rows_of(found, "training")] == ["train", "resume", "predict"]
    assert {row["implementation"] for row in rows_of(found, "recompute")} == {"native", "segment"}
    assert all(row["launches"] == 0 and row["stages"] for row in rows_of(found, "stages"))
    (counters,) = rows_of(found, "counters")
    assert counters["stages"]
    assert counters["skipped"] == "a rehearsal reads no counters"


@pytest.mark.slow
@pytest.mark.long
def test_a_fault_in_a_kernel_is_found_by_the_conformance_item(tmp_path: Path) -> None:
    variables = environment({CUDA_VARIABLE: str(build(fault=FAULTS["a missed tail"]))}, tmp_path, rehearsal=True)
    rows: list[dict[str, Any]] = []
    item = Item("conformance", "conformance", 300.0, {"part": "first", "implementations": ["native", "bucketed"]})
    outcomes = measure_together(
        [item], tmp_path, variables, 300.0, rehearsal=True, take=lambda item, row: rows.append(row)
    )
    assert outcomes["conformance"].status == "done"
    failed = [row for row in rows if not row["ok"]]
    assert failed
    assert {row["implementation"] for row in failed} == {"native"}


@pytest.mark.slow
def test_the_sampler_is_built_where_the_package_is_not_installed(tmp_path: Path) -> None:
    made, problem = built(tmp_path / "build", cuda=False)
    if problem == "cmake is not on PATH":
        pytest.skip(problem)
    assert problem == ""
    assert list(made) == ["JHGNN_SAMPLING_LIBRARY"]
    assert Path(made["JHGNN_SAMPLING_LIBRARY"]).is_file()


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    done = run("--out", str(out), "--only", "copy", "--budget-s", "60")
    assert done.returncode == 3
    assert "JAX sees no GPU" in done.stderr
    assert "Traceback" not in done.stderr
    assert rows_of(json.loads(out.read_text()), "copy") == []
