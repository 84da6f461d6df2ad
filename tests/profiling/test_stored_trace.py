"""The analysis of a stored trace, whole and broken."""

import json
from pathlib import Path

import jax
import pytest

from jhgnn.errors import InputError
from jhgnn.profiling import hlo, memory, scopes, xplane
from jhgnn.profiling.stages import analyse


def trace_file(stored: Path) -> Path:
    return xplane.find_trace(stored)


def test_the_report_is_complete(stored):
    profile = analyse(stored)
    assert profile["warnings"] == []
    assert profile["attribution"]["attributed"] >= 0.97
    assert abs(profile["step"]["parts_over_measured"] - 1) < 0.05
    found = {(row["stage"], row["direction"]) for row in profile["stages"]}
    assert found >= {(stage, way) for stage in ("FP", "NA", "SF", "LC") for way in ("forward", "backward")}
    assert ("PU", "update") in found
    stage_s = sum(row["seconds"] for row in profile["stages"])
    idle_s = sum(profile["idle"].values())
    assert stage_s + idle_s == pytest.approx(profile["step"]["wall_s"])
    metapaths = {row["part"] for row in profile["parts"] if row["stage"] == "NA"}
    assert metapaths == {"MDM", "MAM"}
    json.dumps(profile, allow_nan=False)


def test_native_kernels_are_attributed_and_typed(stored):
    ops = {row["kernel"]: row for row in analyse(stored)["ops"]}
    forward, backward = ops["jhgnn_attention_forward"], ops["jhgnn_attention_backward"]
    assert (forward["stage"], forward["direction"], forward["type"]) == ("NA", "forward", "TB")
    assert (backward["stage"], backward["direction"], backward["type"]) == ("NA", "backward", "TB")
    assert ops["jhgnn_row_sum"]["stage"] == "FP"
    assert forward["flops"] > 0
    assert forward["bytes"] > 0


def test_costs_agree_with_the_cost_model_of_xla(stored):
    check = analyse(stored)["cost_check"]
    assert check["flops"] == pytest.approx(check["xla_flops"], rel=0.01)
    assert check["transcendentals"] == check["xla_transcendentals"]


def test_memory_by_stage(stored):
    found = analyse(stored)["memory"]
    training, inference = found["training"], found["inference"]
    assert training["source"] == "buffer assignment"
    assert 0 < training["peak_live_bytes"] <= training["temp_bytes"]
    assert training["peak_live_bytes"] >= 0.5 * training["temp_bytes"]
    assert sum(training["peak_by_stage"].values()) == training["peak_live_bytes"]
    assert inference["temp_bytes"] < training["temp_bytes"]
    assert set(found["residuals"]) >= {"NA", "SF"}
    assert sum(found["residuals"].values()) < training["temp_bytes"]


def test_without_a_buffer_assignment_sizes_come_from_shapes(stored):
    (stored / "step.buffers.json").unlink()
    training = analyse(stored)["memory"]["training"]
    assert training["source"] == "schedule"
    assert training["peak_live_bytes"] > 0


PROGRAM = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[256]) -> f32[256] {
  %x = f32[256]{0} parameter(0)
  %a = f32[256]{0} negate(%x), metadata={op_name="jit(f)/jvp(FP)/neg"}
  %b = f32[512]{0} pad(%a, %x), metadata={op_name="jit(f)/jvp(layer0/NA/R)/pad"}
  %view = f32[2,256]{1,0} bitcast(%b)
  %c = f32[256]{0} reduce(%view, %x), dimensions={0}, to_apply=%none, metadata={op_name="jit(f)/jvp(SF)/sum"}
  ROOT %d = f32[256]{0} add(%c, %a), metadata={op_name="jit(f)/transpose(jvp(SF))/add"}
}
"""


def test_lifetimes_by_hand():
    module = hlo.parse(PROGRAM)
    line = memory.timeline(module, scopes.attribute(module), memory.rows_from_schedule(module), 0, "schedule")
    kib = {key: [size // 1024 for size in sizes] for key, sizes in line.by_stage.items()}
    assert kib["FP.forward"] == [0, 1, 1, 1, 1, 1]
    assert kib["NA.forward"] == [0, 0, 2, 2, 2, 0]
    assert kib["SF.forward"] == [0, 0, 0, 0, 1, 1]
    assert (line.peak_bytes, line.peak_op) == (4096, "c")
    assert memory.residuals(module, scopes.attribute(module)) == {"FP": 1024, "SF": 1024}


def test_a_truncated_trace(stored):
    path = trace_file(stored)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="truncated, or not an XSpace"):
        analyse(stored)


def test_an_empty_trace(stored):
    trace_file(stored).write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        analyse(stored)


def test_no_trace(tmp_path):
    with pytest.raises(InputError, match=r"no \.xplane\.pb file"):
        analyse(tmp_path)


def test_no_program(stored):
    (stored / "step.hlo.txt.gz").unlink()
    with pytest.raises(InputError, match=r"no step\.hlo\.txt beside it"):
        analyse(stored)


def test_a_trace_of_another_program(stored):
    (stored / "step.hlo.txt").write_text(PROGRAM)
    with pytest.raises(InputError, match="is of 'jit_train_step', and the program beside it is 'm'"):
        analyse(stored)


def test_a_program_compiled_anew(stored):
    text = PROGRAM.replace("HloModule m", "HloModule jit_train_step")
    (stored / "step.hlo.txt").write_text(text)
    with pytest.raises(InputError, match="are not in the program beside it"):
        analyse(stored)


def test_unknown_planes_are_named_and_left_out(stored):
    path = trace_file(stored)
    extra = jax.profiler.ProfileData.text_proto_to_serialized_xspace(
        'planes { name: "/device:GPU:0" } planes { name: "/quantum:0" }'
    )
    path.write_bytes(path.read_bytes() + extra)  # messages add up
    profile = analyse(stored)
    assert [warning.split(" ")[1] for warning in profile["warnings"]] == ["'/quantum:0'", "'/device:GPU:0'"]
    assert profile["attribution"]["attributed"] >= 0.97
    assert profile["gpu"] is None


def test_a_trace_without_the_host_is_refused(stored):
    text = 'planes { name: "/device:GPU:0" }'
    trace_file(stored).write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text))
    with pytest.raises(InputError, match="has no '/host:CPU' plane"):
        analyse(stored)


def test_without_facts_the_rest_is_still_reported(stored):
    (stored / "capture.json").unlink()
    profile = analyse(stored)
    assert profile["attribution"]["attributed"] >= 0.97
    assert profile["roofline"]["ceilings"] is None
    assert any("no capture.json" in warning for warning in profile["warnings"])
