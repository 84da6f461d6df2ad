"""The parts of a step add up to it, whatever the threads did."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.profiling.occupancy import step_times
from jhgnn.profiling.xplane import Span, Trace, leaves


def trace(busy, open_ops=(), host=(), window=(0, 100)):
    steps = (Span("train", *window),)
    threads = tuple(tuple(sorted(each, key=lambda span: (span.start_ns, -span.end_ns))) for each in busy)
    return Trace(steps, tuple(host), threads, tuple(open_ops), Counter(), Counter(), ())


spans = st.builds(
    lambda name, start, length: Span(name, start, start + length),
    st.sampled_from("abcd"),
    st.integers(-20, 110),
    st.integers(0, 60),
)


@given(st.lists(st.lists(spans, max_size=6), max_size=3), st.lists(spans, max_size=4), st.lists(spans, max_size=3))
def test_parts_add_up(busy, open_ops, host):
    (times,) = step_times(trace(busy, open_ops, host))
    total = sum(sum(part.values()) for part in (times.ops, times.host, times.idle))
    assert total == pytest.approx(times.wall_s)
    assert times.wall_s == pytest.approx(100e-9)


@given(st.lists(spans, max_size=8))
def test_leaves_do_not_overlap_and_cover_what_the_spans_cover(found):
    ordered = tuple(sorted(found, key=lambda span: (span.start_ns, -span.end_ns)))
    pieces = list(leaves(ordered))
    covered = {time for span in ordered for time in range(span.start_ns, span.end_ns)}
    counted = [time for piece in pieces for time in range(int(piece.start_ns), int(piece.end_ns))]
    assert len(counted) == len(set(counted))
    assert set(counted) == {time for time in covered if time >= 0}


def test_two_threads_share_an_instant():
    (times,) = step_times(trace([[Span("a", 0, 60)], [Span("b", 20, 100)]]))
    assert times.ops == pytest.approx({"a": 40e-9, "b": 60e-9})
    assert sum(times.idle.values()) == 0


def test_a_loop_keeps_what_its_body_leaves():
    (times,) = step_times(trace([[Span("while", 0, 100), Span("body", 10, 40), Span("body", 50, 90)]]))
    assert times.ops == pytest.approx({"while": 30e-9, "body": 70e-9})


def test_an_op_that_waits_for_unseen_threads_takes_the_time_that_nobody_works():
    (times,) = step_times(trace([[Span("start", 10, 20)]], [Span("start", 10, 20), Span("slow", 15, 70)]))
    assert times.ops == pytest.approx({"start": 10e-9, "slow": 50e-9})
    assert times.idle == pytest.approx({"launch": 10e-9, "gaps": 0.0, "finish": 30e-9})


def test_host_work_counts_where_no_op_runs():
    (times,) = step_times(trace([[Span("a", 30, 60)]], host=[Span("SAMPLE", 10, 40)]))
    assert times.host == pytest.approx({"SAMPLE": 20e-9})
    assert times.hidden == pytest.approx({"SAMPLE": 10e-9})
    assert times.idle == pytest.approx({"launch": 10e-9, "gaps": 0.0, "finish": 40e-9})
