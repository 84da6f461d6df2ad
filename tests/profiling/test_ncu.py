"""Nsight Compute's raw CSV: units, absent values, broken files, and the join with stages."""

import shutil

import pytest

from jhgnn.errors import InputError
from jhgnn.profile import main
from jhgnn.profiling import ncu
from jhgnn.profiling.stages import analyse
from tests.profiling import gpu_trace

NAMES = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"),
    *("Device", "CC", "dram__bytes.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    *("gpu__time_duration.sum", "lts__t_sector_hit_rate.pct", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
]
UNITS = [""] * 11 + ["Mbyte", "%", "usecond", "%", "%", "inst", "inst"]


def row(number: int, kernel: str, *values: str) -> list[str]:
    return [str(number), "7", "python3.11", "host", kernel, "1", "13", "(128, 1, 1)", "(2, 1, 1)", "0", "9.0", *values]


ROWS = [
    row(0, "gemm_fusion_1", "1.50", "40.00", "20.00", "80.00", "50.00", "3.00", "1.00"),
    row(1, "loop_fusion_2", "2,048.00", "90.00", "30.00", "25.00", "60.00", "9.00", "1.00"),
    row(2, "gemm_fusion_1", "0.50", "20.00", "20.00", "n/a", "50.00", "1.00", "1.00"),
    row(3, "void cub::Kernel<(int)256, float>(float *, int)", "1.00", "1.00", "10.00", "1.00", "1.00", "1.00", "1.00"),
]


def sample(folder, rows=ROWS, units=UNITS):
    lines = [",".join(f'"{value}"' for value in each) for each in [NAMES, units, *rows]]
    path = folder / "ncu.csv"
    path.write_text("==PROF== Connected to process 7\nloss 0.5\n" + "\n".join(lines) + "\n==PROF== Disconnected\n")
    return path


def test_values_units_and_gaps(tmp_path):
    first, second, third, fourth = ncu.read_csv(sample(tmp_path))
    assert first["dram_bytes"] == pytest.approx(1.5e6)
    assert second["dram_bytes"] == pytest.approx(2.048e9)
    assert first["seconds"] == pytest.approx(20e-6)
    assert second["l2_hit_share"] == pytest.approx(0.25)
    assert third["l2_hit_share"] is None
    assert first["sm_share"] is None  # not among the columns
    assert second["stalls"] == {"long_scoreboard": 9.0, "wait": 1.0}
    assert fourth["kernel"] == "Kernel"


def test_stages_of_a_profile(tmp_path):
    folder = gpu_trace.write(tmp_path)
    sample(folder)
    found = analyse(folder)["ncu"]
    stages = {(each["stage"], each["direction"]): each for each in found["stages"]}
    fp, na, other = stages["FP", "forward"], stages["NA", "forward"], stages["other", "none"]
    assert (fp["launches"], na["launches"], other["launches"]) == (2, 1, 1)
    assert fp["dram_bytes"] == pytest.approx(2e6)
    assert fp["dram_share"] == pytest.approx(0.3)
    assert fp["l2_hit_share"] == pytest.approx(0.8)  # over the launch that has one
    assert na["memory_stall_share"] == pytest.approx(0.9)
    assert fp["stalls"]["long_scoreboard"] == pytest.approx(4 / 6)
    assert found["joined"] == pytest.approx(70 / 80)
    assert {each["kernel"]: each["op"] for each in found["kernels"]}["loop_fusion_2"] == "loop_fusion.2"


def broken(kind, folder):
    path = sample(folder)
    if kind == "empty":
        path.write_text("")
    elif kind == "another page":
        path.write_text('"ID","Metric Name"\n"0","x"\n')
    elif kind == "truncated":
        path.write_text(path.read_text()[:-60])
    elif kind == "unit":
        sample(folder, units=[*UNITS[:11], "furlong", *UNITS[12:]])
    elif kind == "number":
        sample(folder, rows=[row(0, "k", "many", "1", "1", "1", "1", "1", "1")])
    else:
        path.unlink()
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "no line that begins with"),
        ("another page", "no column 'Kernel Name'"),
        ("truncated", "truncated"),
        ("unit", "is in 'furlong'"),
        ("number", "is 'many', not a number"),
        ("absent", "No such file"),
    ],
)
def test_broken_files_give_one_line(kind, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        ncu.read_csv(broken(kind, tmp_path))
    assert "\n" not in str(caught.value)


def test_without_the_tool_one_line_and_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["--ncu", "--config", "configs/han_acm.toml", "--run.dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: --ncu: Nsight Compute's command `ncu` is not on PATH")
    assert "\n" not in said


def test_the_tool_is_run_and_merged(tmp_path, monkeypatch):
    """A stand-in for `ncu` that prints a stored CSV: what is called, and where its output goes."""
    stored = sample(tmp_path).rename(tmp_path / "stored.csv")
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" > {tmp_path}/called\ncat {stored}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    folder = gpu_trace.write(tmp_path / "run")
    (folder / "recipe.toml").write_text("")
    assert ncu.read_csv(ncu.measure(folder))[1]["kernel"] == "loop_fusion_2"
    called = (tmp_path / "called").read_text()
    assert "--csv --page raw" in called
    assert "dram__bytes.sum" in called
    assert called.rstrip().endswith(f"jhgnn.profiling.replay {folder / 'recipe.toml'}")
