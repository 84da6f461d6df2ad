"""The densities that `bench.ops` derives for `auto`."""

import pytest

from bench.ops.thresholds import IN_CODE, dense_from, thresholds_text


def row(density: float, dense_ms: float, segment_ms: float, op: str = "neighbor_mean") -> dict:
    results = {"dense": {"ms": dense_ms}, "segment": {"ms": segment_ms}, "native": {"ms": 2.0}}
    return {
        "case": f"density_{density}",
        "op": op,
        "pass": "forward + backward",
        "density": density,
        "results": results,
    }


def test_the_threshold_lies_where_both_take_the_same_time():
    # Segment sums take 100 ms at a density of 1, in proportion; the dense product takes 3 ms at any.
    rows = [row(density, 3.0, 100.0 * density) for density in (0.1, 0.01, 0.02, 0.05)]
    assert dense_from(rows, "neighbor_mean") == pytest.approx(0.03)
    assert dense_from(rows, "neighbor_attention") is None


def test_one_that_always_wins_moves_the_threshold_to_an_end_of_the_sweep():
    assert dense_from([row(0.01, 1.0, 2.0), row(0.1, 1.0, 2.0)], "neighbor_mean") == 0.01
    assert dense_from([row(0.01, 2.0, 1.0), row(0.1, 2.0, 1.0)], "neighbor_mean") == 0.1


def test_the_page_has_both_figures_and_where_native_loses():
    lines = thresholds_text([row(0.01, 3.0, 1.0), row(0.1, 3.0, 10.0)])
    assert f"{IN_CODE['neighbor_mean']:.1%}" in lines[0]
    assert "1 of 2 rows: all but neighbor_mean density_0.01 forward + backward (segment)" in lines[-1]
