"""The model of a step on several GPUs: its parts by hand, and its limits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import several_gpus
from bench.several_gpus import (
    HOP_S,
    LAUNCH_S,
    NVLINK_BYTES_PER_S,
    PCIE_BYTES_PER_S,
    host_sampling_s,
    peak,
    step,
    work,
)
from jhgnn.profiling.hlo import parse


def program(devices: int = 1, **others: object) -> dict[str, object]:
    return {
        "devices": devices,
        "flops": 0.0,
        "moved_bytes": 0.0,
        "launches": 0,
        "batch_bytes": 0,
        "kernels": 10,
        "collectives": [],
    } | others


def test_a_device_takes_the_longer_of_operations_and_bytes_and_its_launches() -> None:
    operations_per_s, bytes_per_s = peak("a100")
    assert operations_per_s == pytest.approx(19.5e12, rel=0.01)  # what NVIDIA states of float32
    bound = step(program(flops=1e-3 * operations_per_s, moved_bytes=3e-3 * bytes_per_s, launches=100), 0.0)
    assert bound["device_s"] == pytest.approx(3e-3 + 100 * LAUNCH_S)
    assert bound["step_s"] == bound["device_s"]


def test_an_all_reduce_goes_round_the_ring_twice_and_an_all_gather_once() -> None:
    for kind, rounds in (("all-reduce", 2), ("all-gather", 1)):
        each = {"kind": kind, "bytes": 3e9, "kernels_meanwhile": 0}
        found = step(program(4, collectives=[each]), 1.0)
        sent = rounds * 3 / 4 * 3e9
        assert found["sync_s"] == pytest.approx(sent / NVLINK_BYTES_PER_S + rounds * 3 * HOP_S)
        assert found["nvlink_bytes_per_s"] == pytest.approx(sent / found["sync_s"])


def test_kernels_that_run_meanwhile_hide_a_collective() -> None:
    busy = {"flops": peak()[0], "kernels": 10}
    exposed, half, whole = (
        step(program(2, **busy, collectives=[{"kind": "all-gather", "bytes": 3e9, "kernels_meanwhile": n}]), 1.0)
        for n in (0, 0, 5)
    )
    assert exposed == half
    assert exposed["hidden_s"] == 0
    assert whole["sync_s"] == 0  # half a second of kernels hides 5 ms
    assert whole["hidden_s"] == pytest.approx(exposed["sync_s"])


@given(st.sampled_from([2, 4, 8]), st.floats(0, 1), st.floats(1e6, 1e10))
def test_transfers_that_meet_take_longer_and_never_more_than_all_at_once(
    devices: int, sample_s: float, num_bytes: float
) -> None:
    alone, shared = (step(program(count, batch_bytes=num_bytes, launches=10), sample_s) for count in (1, devices))
    assert alone["load_s"] == pytest.approx(num_bytes / PCIE_BYTES_PER_S)
    assert alone["load_s"] <= shared["load_s"] <= devices * alone["load_s"] * (1 + 1e-9)
    assert shared["pcie_bytes_per_s"] == pytest.approx(num_bytes / shared["load_s"])
    for each in (alone, shared):
        parts = each["sample_s"] + each["load_s"] + each["device_s"] + each["sync_s"]
        assert each["step_s"] == pytest.approx(parts)


LOOP = """HloModule loop

%body (p: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %p = (s32[], f32[1000]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[1000]{0} get-tuple-element(%p), index=1
  %y = f32[1000]{0} add(%x, %x)
  ROOT %t = (s32[], f32[1000]) tuple(%i, %y)
}

%condition (p: (s32[], f32[1000])) -> pred[] {
  %p = (s32[], f32[1000]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(7)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[1000]) -> f32[1000] {
  %x = f32[1000]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[1000]) tuple(%zero, %x)
  %loop = (s32[], f32[1000]) while(%start), condition=%condition, body=%body, KNOWN
  %y = f32[1000]{0} get-tuple-element(%loop), index=1
  ROOT %z = f32[1000]{0} multiply(%y, %y)
}
"""


@pytest.mark.parametrize(("known", "times"), [('backend_config={"known_trip_count":{"n":"7"}}', 7), ("metadata={}", 1)])
def test_a_loop_counts_as_often_as_the_compiler_knows(known: str, times: int) -> None:
    flops, moved = work(parse(LOOP.replace("KNOWN", known)))
    assert flops == pytest.approx(1000 * times + 1000, abs=2 * times)  # and the loop's own comparison
    assert moved >= 8000 * (times + 1)


def test_the_host_samples_shares_as_long_as_was_measured_beside_fused_steps(tmp_path, monkeypatch) -> None:
    measured = [
        {"group": "sampled", "name": name, "aggregation": kind, "host": {"SAMPLE": seconds}}
        for name, kind, seconds in [("rgcn mag", "segment", 3), ("rgcn mag", "fused", 2), ("han mag", "fused", 5)]
    ]
    shares = [{"shares": 1, "slowdown_processes": 1.0}, {"shares": 2, "slowdown_processes": 0.75}]
    for name, rows in (("PAPER", measured), ("CONTENTION", shares)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"rows": rows}))
        monkeypatch.setattr(several_gpus, name, path)
    assert host_sampling_s("rgcn_mag") == {1: 2, 2: 1.5}
