"""Traces that an H200 wrote, kept in `bench/results/gpu-h200/traces`, are read as what they are."""

import lzma
import shutil
from pathlib import Path

import pytest

from jhgnn.errors import InputError
from jhgnn.profiling.stages import analyse

TRACES = Path(__file__).parents[2] / "bench" / "results" / "gpu-h200" / "traces"
CASES = {"han_dblp": 1536, "rgat_dblp": 379, "rgcn_dblp": 160}
"""Case -> kernels of a step, as the run that wrote the trace counted them."""


def unpacked(case: str, folder: Path) -> Path:
    for packed in (TRACES / case).glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    shutil.copy(TRACES / case / "capture.json", folder)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_has_its_stage(case: str, tmp_path: Path) -> None:
    profile = analyse(unpacked(case, tmp_path))
    kernels = profile["gpu"]["kernels"]
    assert sum(row["launches"] for row in kernels) == pytest.approx(CASES[case])
    assert profile["attribution"]["attributed"] > 0.98
    assert profile["step"]["parts_over_measured"] == pytest.approx(1.0, abs=0.01)
    assert {row["stage"] for row in profile["stages"]} >= {"FP", "NA", "SF", "LC", "PU"}
    assert all(0 < row["occupancy"] <= 1 + 1e-9 for row in kernels if row["stage"] != "other")
    (device,) = profile["gpu"]["devices"]
    assert device == "/device:GPU:0"
    assert profile["warnings"] == ["no inference.hlo.txt beside the trace: training is not compared with inference"]


def test_neighbor_aggregation_takes_most_of_hans_kernels(tmp_path: Path) -> None:
    seconds: dict[str, float] = {}
    for row in analyse(unpacked("han_dblp", tmp_path))["gpu"]["kernels"]:
        seconds[row["stage"]] = seconds.get(row["stage"], 0.0) + row["seconds"]
    assert seconds["NA"] / sum(seconds.values()) > 0.95


def test_a_trace_of_graphs_of_kernels_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = unpacked("rgcn_dblp", tmp_path)
    trace = folder / "step.xplane.pb"
    # As CUPTI names what is in a graph: by the op that starts all of it.
    trace.write_bytes(trace.read_bytes().replace(b"loop_reduce_fusion.4", b"command_buffer_1.abc"))
    with pytest.raises(InputError, match="started as graphs of CUDA's"):
        analyse(folder)
