"""What the lane reads out of a compiled program, and the limits that it holds programs to."""

from typing import Any

import pytest

from bench.gpu.devices import GPUS
from bench.gpu.facts import Size, facts_of
from bench.gpu.limits import broken
from jhgnn.profiling.hlo import parse

PROGRAM = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused_scatter (p: f32[5,4], i: s32[7,1], u: f32[7,4]) -> f32[5,4] {
  %p = f32[5,4]{1,0} parameter(0)
  %i = s32[7,1]{1,0} parameter(1)
  %u = f32[7,4]{1,0} parameter(2)
  ROOT %scatter.1 = f32[5,4]{1,0} scatter(%p, %i, %u), to_apply=%add, metadata={op_name="jit(step)/PU/scatter-add"}
}

%fused_loop (p: f32[40000,8]) -> f32[40000,8] {
  %p = f32[40000,8]{1,0} parameter(0)
  ROOT %negate = f32[40000,8]{1,0} negate(%p)
}

%body (state: (s32[], f32[40000,8])) -> (s32[], f32[40000,8]) {
  %state = (s32[], f32[40000,8]) parameter(0)
  %count = s32[] get-tuple-element(%state), index=0
  %rows = f32[40000,8]{1,0} get-tuple-element(%state), index=1
  %one = f32[40000,8]{1,0} fusion(%rows), kind=kLoop, calls=%fused_loop, metadata={op_name="jit(step)/layer0/NA/AB/neg"}
  ROOT %next = (s32[], f32[40000,8]) tuple(%count, %one)
}

%condition (state: (s32[], f32[40000,8])) -> pred[] {
  %state = (s32[], f32[40000,8]) parameter(0)
  ROOT %go = pred[] constant(true)
}

ENTRY %main (x: f32[5,4], i: s32[7,1], u: f32[7,4], n: s32[9], start: (s32[], f32[40000,8])) -> f32[5,4] {
  %x = f32[5,4]{1,0} parameter(0)
  %i = s32[7,1]{1,0} parameter(1)
  %u = f32[7,4]{1,0} parameter(2)
  %n = s32[9]{0} parameter(3)
  %start = (s32[], f32[40000,8]) parameter(4)
  %loop = (s32[], f32[40000,8]) while(%start), condition=%condition, body=%body, backend_config={TRIPS}
  %added = f32[5,4]{1,0} fusion(%x, %i, %u), kind=kInput, calls=%fused_scatter
  %all-reduce-start = f32[5,4]{1,0} all-reduce-start(%added), to_apply=%add, replica_groups={{0,1}}
  %counted = s32[9]{0} scatter(%n, %i, %i), to_apply=%add
  %written = f32[5,4]{1,0} scatter(%x, %i, %u), unique_indices=true, to_apply=%add
  %all-reduce-done = f32[5,4]{1,0} all-reduce-done(%all-reduce-start)
  %call = f32[5,4]{1,0} custom-call(%written), custom_call_target="jhgnn_row_sum"
  ROOT %out = f32[5,4]{1,0} add(%call, %all-reduce-done)
}
""".replace("TRIPS", '"known_trip_count":{"n":"3"}')


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return facts_of(parse(PROGRAM), {"AB": Size(40000, 39999)}, 8)


def test_scatters_are_told_apart(facts: dict[str, Any]) -> None:
    assert facts["float_scatters"] == ["f32[5,4] jit(step)/PU/scatter-add"]
    assert (facts["row_writes"], facts["integer_scatters"]) == (1, 1)


def test_kernels_are_counted_once_and_launches_as_often_as_loops_run(facts: dict[str, Any]) -> None:
    assert (facts["kernels"], facts["launches"], facts["loops"]) == (7, 9, 1)


def test_an_array_of_a_message_an_edge_is_found_in_its_scope(facts: dict[str, Any]) -> None:
    assert facts["edge_wide_arrays"] == ["f32[40000,8] jit(step)/layer0/NA/AB/neg"]
    for size, width in ((Size(40001, 9), 8), (Size(40000, 9), 9), (Size(9, 40000), 8)):
        assert facts_of(parse(PROGRAM), {"AB": size}, width)["edge_wide_arrays"] == []
    assert facts_of(parse(PROGRAM), {"A": Size(1, 1)}, 1)["edge_wide_arrays"] == []
    small = PROGRAM.replace("40000", "100")
    assert facts_of(parse(small), {"AB": Size(100, 9)}, 8)["edge_wide_arrays"] == []


def test_the_vertices_of_several_graphs_are_no_messages() -> None:
    graphs = {"AB": Size(30000, 20000), "AC": Size(50000, 20000)}
    assert facts_of(parse(PROGRAM), graphs, 8)["edge_wide_arrays"] == []
    assert facts_of(parse(PROGRAM), {"AB": graphs["AB"]}, 8)["edge_wide_arrays"] != []


def test_collectives_have_bytes_and_what_runs_beside_them(facts: dict[str, Any]) -> None:
    assert facts["collectives"] == [{"kind": "all-reduce", "bytes": 80, "kernels_meanwhile": 2}]
    assert facts["custom_calls"] == {"jhgnn_row_sum": 1}


def row(**changes: Any) -> dict[str, Any]:
    return {
        "case": "han_dblp", "recipe": "han_dblp", "variant": "", "program": "update", "devices": 8, "gpu": "h100",
        "float_scatters": [], "edge_wide_arrays": [], "temp_bytes": 2**20, "collectives": [{}],
        "implementations": ["bucketed"],
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"float_scatters": ["f32[3] x"]}, "a scatter of floats: f32[3] x"),
        ({"edge_wide_arrays": ["f32[9,8] x"]}, "an array of a message for each edge: f32[9,8] x"),
        ({"temp_bytes": 91 * 2**20}, "91.0 MiB of temporaries, over 90"),
        ({"temp_bytes": 41 * 2**20, "implementations": ["native"]}, "41.0 MiB of temporaries, over 40"),
        ({"temp_bytes": 91 * 2**20, "program": "evaluation"}, ""),
        ({"collectives": []}, "0 collectives, on CPUs 1"),
        ({"float_scatters": ["f32[3] x"], "variant": "segment"}, ""),
    ],
)
def test_limits(changes: dict[str, Any], message: str) -> None:
    rows = [row(**changes), row(gpu="cpu")]
    found = list(broken(rows[0], rows))
    assert found == ([f"han_dblp update for 8 x h100: {message}"] if message else [])


def test_a_device_is_described_in_every_way_that_xla_asks_for() -> None:
    for gpu in GPUS.values():
        text = gpu.target_config()
        assert text.count("{") == text.count("}")
        for field in ("core_count", "cuda_compute_capability", "runtime_version", "driver_version", "dnn_version"):
            assert field in text
    assert [gpu.architecture for gpu in GPUS.values()] == ["sm_80", "sm_90a", "sm_90a", "sm_100a"]
