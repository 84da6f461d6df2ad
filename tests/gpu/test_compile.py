"""Programs of recipes, compiled for GPUs on a machine without one: what holds of them without running them.

Skipped where the environment that can compile is not there; `.ci/run` makes it.
"""

from typing import Any

import pytest

from bench.gpu.cases import Case, kernels_of
from bench.gpu.compile_lane import compiled
from bench.gpu.environment import missing
from bench.gpu.limits import broken
from jhgnn.native import cuda

pytestmark = pytest.mark.slow

MAG = {"data": {"scale": 0.005}, "sampling": {"batch_size": 64}}
ATTENTION, MEAN = kernels_of("attention", "bucketed"), kernels_of("mean", "bucketed")
CASES = {
    "han": Case("han_dblp", "bucketed", {"kernels": ATTENTION}),
    "rgcn": Case("rgcn_dblp", "bucketed", {"kernels": MEAN}),
    "rgat": Case("rgat_acm", "bucketed", {"kernels": ATTENTION, "model": {"attention_dropout": 0.3}}),
    "sampled on the host": Case("rgcn_mag", "host", MAG | {"sampling": {"batch_size": 64, "side": "host"}}),
    "sampled on the device": Case("rgat_mag", "device", MAG | {"sampling": {"batch_size": 64, "side": "device"}}),
}


@pytest.fixture(scope="module")
def environment() -> None:
    reason = missing()
    if reason:
        pytest.skip(f"nothing can be compiled for a GPU here: {reason}")


def rows_of(case: Case, gpus: list[str]) -> list[dict[str, Any]]:
    rows = list(compiled(case, gpus, (1, 8)))
    assert not [row for row in rows if "skipped" in row]
    return rows


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in ("rgcn", "rgat", "sampled on the device") else [])
        for name in CASES
    ],
)
def test_no_program_breaks_a_limit(name: str) -> None:
    rows = rows_of(CASES[name], ["h100"])
    assert {"update", "evaluation"} <= {row["program"] for row in rows}
    assert [problem for row in rows for problem in broken(row, rows)] == []
    for row in rows:
        if row["gpu"] != "cpu":
            assert not [target for target in row["custom_calls"] if target.startswith("jhgnn_")]
    if CASES[name].sampled:
        assert {row["devices"] for row in rows if row["gpu"] == "h100"} == {1, 8}
        assert all(row["collectives"] for row in rows if row["devices"] == 8)
    else:
        assert all(row["implementations"] == ["bucketed"] for row in rows)


@pytest.mark.usefixtures("environment")
@pytest.mark.skipif(not cuda.available(), reason="needs the GPU's kernels, which nvcc builds")
def test_hans_update_with_our_kernels_keeps_little() -> None:
    """Below 40 MiB of temporaries, by `bench.gpu.limits`; `auto` takes its kernels, and they are in the program."""
    rows = rows_of(Case("han_dblp", "", {}), ["h100"])
    assert all(row["implementations"] == ["native"] for row in rows)
    assert [problem for row in rows for problem in broken(row, rows)] == []
    (update,) = [row for row in rows if row["program"] == "update"]
    assert {"jhgnn_cuda_attention_forward", "jhgnn_cuda_attention_backward"} <= update["custom_calls"].keys()


@pytest.mark.usefixtures("environment")
def test_what_the_reference_does_breaks_them() -> None:
    """The limits would be of no use if segment sums kept them."""
    case = Case("rgcn_acm", "segment", {"kernels": {"mean": "segment", "projection": "segment"}})
    (row,) = [row for row in rows_of(case, ["h100"]) if row["program"] == "update"]
    assert len(row["float_scatters"]) > 10
    assert list(broken(row | {"variant": ""}, [row]))


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("gpu", [pytest.param(name, marks=pytest.mark.long) for name in ("a100", "h200", "b200")])
def test_other_kinds_of_device(gpu: str) -> None:
    case = Case("rgcn_acm", "", {})
    rows = rows_of(case, [gpu])
    assert [row["gpu"] for row in rows] == [gpu, gpu]
    assert [problem for row in rows for problem in broken(row, rows)] == []
