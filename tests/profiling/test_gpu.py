"""GPU planes: streams in place of threads, kernels with occupancy and launch, derived lines not counted twice."""

import json

import pytest

from jhgnn.errors import InputError
from jhgnn.profiling.gpu import NO_OP, Kernel, executions
from jhgnn.profiling.report import write_report
from jhgnn.profiling.stages import analyse
from tests.profiling import gpu_trace


@pytest.fixture
def profile(tmp_path):
    return analyse(gpu_trace.write(tmp_path / "trace"))


def test_streams_are_the_step(profile):
    found = {(row["stage"], row["direction"]): row["seconds"] for row in profile["stages"]}
    assert found["FP", "forward"] == pytest.approx(20e-6)
    assert found["NA", "forward"] == pytest.approx(30e-6)
    assert found["NA", "backward"] == pytest.approx(10e-6)
    assert found["other", "none"] == pytest.approx(2e-6)  # the memory set, which no op launched
    assert profile["host"]["parts"] == {"LOAD": pytest.approx(5e-6)}
    idle_s = sum(profile["idle"].values())
    assert sum(found.values()) + 5e-6 + idle_s == pytest.approx(profile["step"]["wall_s"])
    assert profile["step"]["wall_s"] == pytest.approx(100e-6)
    assert profile["attribution"]["unattributed"] == pytest.approx(2 / 62)


def test_kernels_have_occupancy_launch_and_stage(profile):
    rows = {row["kernel"]: row for row in profile["gpu"]["kernels"]}
    gemm, loop = rows["gemm_fusion_1"], rows["loop_fusion_2"]
    assert (gemm["stage"], gemm["direction"], gemm["stream"]) == ("FP", "forward", "Stream #13(Compute,MemcpyH2D)")
    assert (loop["stage"], loop["op"], loop["stream"]) == ("NA", "loop_fusion.2", "Stream #14(Compute)")
    assert gemm["occupancy"] == pytest.approx(0.5)
    assert loop["occupancy"] == pytest.approx(1.0)
    assert gemm["launches"] == 1
    assert gemm["launch_delay_s"] == pytest.approx(4e-6)
    assert (gemm["regs"], gemm["grid"], gemm["block"]) == ("32", "2,1,1", "128,1,1")
    assert rows["memset"]["stage"] == "other"
    streams = {row["stream"]: row for row in profile["gpu"]["streams"]}
    assert streams["Stream #13(Compute,MemcpyH2D)"]["busy_s"] == pytest.approx(37e-6)
    assert streams["Stream #13(Compute,MemcpyH2D)"]["copies"] == 1
    assert streams["Stream #14(Compute)"]["kernels"] == 1
    assert profile["gpu"]["devices"] == {"/device:GPU:0": {"core_count": 132}}
    json.dumps(profile, allow_nan=False)


def test_an_op_of_two_kernels_ran_as_often_as_either():
    def launch(name, op):
        return Kernel(name, op, "/device:GPU:0", "Stream #1", 0.0, 1.0, None, None, {})

    launched = [launch("split", "dot.1"), launch("reduce", "dot.1"), launch("a", "b"), launch("a", "b")]
    assert executions([*launched, launch("memset", NO_OP)]) == {"dot.1": 1, "b": 2}


def test_the_report_shows_kernels_and_streams(profile, tmp_path):
    write_report(profile, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Stream #14(Compute)" in page
    assert "loop_fusion_2" in page


def test_a_plane_without_streams_is_said(tmp_path):
    with pytest.raises(InputError, match="holds no op of any program"):
        analyse(gpu_trace.write(tmp_path / "trace", streams=False))
