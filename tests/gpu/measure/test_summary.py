"""What a run's rows come to, and what its counters say of the findings."""

from typing import Any

import pytest

from bench.gpu.measure.counters import findings
from bench.gpu.measure.items import EPOCH_CASES, ON_DEVICE, groups
from bench.gpu.measure.packages import NEEDED, missing
from bench.gpu.measure.summary import summary
from bench.gpu.measured_page import with_tables
from bench.gpu.page import PAGE


def epoch(case: str, implementation: str, in_a_row: float, waiting: float, **more: Any) -> dict[str, Any]:
    times = {"in_a_row": {"ms": in_a_row}, "waiting": {"ms": waiting}}
    return {"kind": "epoch", "case": case, "implementation": implementation} | times | more


def op(name: str, pass_name: str, implementation: str, share: float, **more: Any) -> dict[str, Any]:
    row = {"kind": "op", "case": "mag_writes", "op": name, "pass": pass_name, "implementation": implementation}
    row |= {"ms": 1.0, "share_of_copy": share, "num_edges": 9, "density": 0.1, "beyond_the_cache": True}
    return row | more


def test_nothing_measured_meets_no_goal() -> None:
    found = summary([])
    assert found["conformance"] == {"checks": 0, "failed": []}
    assert not found["goals"]["epochs"]["met"]
    assert not found["goals"]["share_of_copy"]["met"]


def test_the_quickest_of_each_side_counts_and_the_lesser_ratio() -> None:
    rows = [
        epoch("han-dblp", "auto", 4.0, 5.0),
        epoch("han-dblp", "native", 2.0, 4.0),
        epoch("han-dblp", "pyg", 30.0, 32.0, variant="HANConv, edge_index"),
        epoch("han-dblp", "pyg", 20.0, 24.0, variant="GATConv, EdgeIndex"),
        {"kind": "epoch", "case": "han-acm", "implementation": "pyg", "skipped": "left out"},
    ]
    found = summary(rows)["epochs"]
    assert found.keys() == {"han-dblp"}
    assert found["han-dblp"]["ours_in_a_row"] == {"ms": 2.0, "by": "native"}
    assert found["han-dblp"]["pyg_in_a_row"] == {"ms": 20.0, "by": "GATConv, EdgeIndex"}
    assert found["han-dblp"]["pyg_over_ours"] == 6.0


@pytest.mark.parametrize(("last", "met"), [(5.0, True), (4.9, False), (None, False)])
def test_the_goal_of_epochs_needs_all_nine(last: float | None, met: bool) -> None:
    rows = []
    for case, pyg in zip(EPOCH_CASES, [7.0] * 8 + [last], strict=True):
        rows += [epoch(case, "auto", 1.0, 1.0)] + ([epoch(case, "pyg", pyg, pyg)] if pyg else [])
    assert summary(rows)["goals"]["epochs"]["met"] is met


def test_the_goal_of_traffic_needs_both_ops_both_ways_beyond_the_cache() -> None:
    passes = ("forward", "forward + backward")
    pairs = [(name, each) for name in ("neighbor_attention", "neighbor_mean") for each in passes]
    rows = [op(*pair, "native", 0.7) for pair in pairs] + [op(*pair, "bucketed", 0.3) for pair in pairs]
    assert summary(rows)["goals"]["share_of_copy"]["met"]
    assert not summary(rows[1:])["goals"]["share_of_copy"]["met"]
    assert not summary([row | {"beyond_the_cache": False} for row in rows])["goals"]["share_of_copy"]["met"]
    assert not summary([row | {"implementation": "cusparse"} for row in rows])["goals"]["share_of_copy"]["met"]


def test_thresholds_are_derived_against_each_of_ours() -> None:
    rows = []
    for density, dense, bucketed in ((0.01, 8.0, 2.0), (0.1, 8.0, 32.0)):
        shared = {"case": f"density_{density}", "density": density}
        rows.append(op("neighbor_mean", "forward + backward", "dense", 0.1, **shared) | {"ms": dense})
        rows.append(op("neighbor_mean", "forward + backward", "bucketed", 0.1, **shared) | {"ms": bucketed})
    assert summary(rows)["thresholds"] == {"neighbor_mean": {"bucketed": pytest.approx(0.01 * 10**0.5)}}


def test_checks_that_fail_are_named_and_sampling_is_compared() -> None:
    check = {"kind": "conformance", "op": "neighbor_mean", "implementation": "native", "takes": "SemanticGraph"}
    check |= {"graph": "hub_in", "heads": 3, "width": 5, "dtype": "float32"}
    sampling = [
        {"kind": "sampling", "fan_out": [9], "sampling": side, "ms": ms}
        for side, ms in (("host", 3.0), ("device", 2.0))
    ]
    found = summary(
        [check | {"ok": True}, check | {"ok": False, "graph": "tiled"}, check | {"skipped": "x"}, *sampling]
    )
    assert found["conformance"]["checks"] == 2
    assert [failed["graph"] for failed in found["conformance"]["failed"]] == ["tiled"]
    assert found["findings"]["16"] == {"host_over_device": {"[9]": 1.5}}


def test_what_counters_say() -> None:
    def stage(name: str, direction: str, hits: float | None, stalls: float, seconds: float) -> dict[str, Any]:
        figures = {"l2_hit_share": hits, "memory_stall_share": stalls, "seconds": seconds}
        return {"stage": name, "direction": direction} | figures

    def kernel(name: str, stalls: float | None, seconds: float) -> dict[str, Any]:
        return {"kernel": name, "memory_stall_share": stalls, "seconds": seconds}

    found = findings(
        {
            "stages": [
                stage("NA", "forward", 0.8, 0.4, 1.0),
                stage("NA", "backward", 0.5, 0.8, 3.0),
                stage("FP", "forward", None, 0.2, 1.0),
            ],
            "kernels": [
                kernel("loop_fusion", 0.9, 3.0),
                kernel("cutlass_80_gemm", 0.1, 1.0),
                kernel("memset", None, 9.0),
            ],
        }
    )
    assert found["10"]["l2_hit_rate_forward_less_backward"] == {"NA": pytest.approx(0.3)}
    assert found["11"] == {"memory_stall_share": pytest.approx(0.7), "of_dense_products": pytest.approx(0.1)}
    assert found["12"]["backward_over_forward"] == pytest.approx(0.8 / 0.3)


def test_the_most_valuable_come_first_and_names_are_their_own() -> None:
    names = [item.name for group in groups(ON_DEVICE) for item in group]
    assert len(names) == len(set(names))
    assert names[:4] == ["copy", "conformance of native", "ops beyond the cache", "epochs han-dblp"]
    assert {f"epochs {case}" for case in EPOCH_CASES} <= set(names)


def test_what_is_not_installed_is_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(rehearsal=True) == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("orbax", "jraph") else object())
    lines = missing(rehearsal=True)
    assert [line.split(" is not installed: ")[0] for line in lines] == ["orbax", "jraph"]
    assert all("\n" not in line for line in lines)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert len(missing(rehearsal=False)) == len(lines) + 4
    assert "jax" in NEEDED


def test_the_page_has_the_tables_of_the_stored_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text
