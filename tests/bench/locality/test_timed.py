"""Interleaved rounds: how many there are, and what they tell. The clock is advanced by those who are timed."""

from collections.abc import Callable

import pytest

from bench.locality import timed
from bench.locality.timed import LEAST_ROUNDS, in_rounds


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def takes(self, *seconds: float) -> Callable[[], None]:
        """Something that takes these times in turn."""
        calls = 0

        def call() -> None:
            nonlocal calls
            self.now_s += seconds[calls % len(seconds)]
            calls += 1

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timed, "time", made)
    return made


def test_steady_contenders_end_after_the_least_rounds(clock: Clock) -> None:
    found = in_rounds({"one": clock.takes(0.5), "two": clock.takes(1.5)}, 10, budget_s=1e9)
    assert (found.rounds, found.noise) == (LEAST_ROUNDS, 0)
    assert found.ratios == {"one": 1, "two": pytest.approx(3)}
    assert found.seconds == pytest.approx({"one": 0.05, "two": 0.15})  # of one run of ten
    assert found.facts()["quiet"]


@pytest.mark.parametrize("budget_s", [0.0, 100.0])
def test_an_unsteady_contender_ends_with_its_budget_and_after_enough_rounds(clock: Clock, budget_s: float) -> None:
    found = in_rounds({"steady": clock.takes(1.0), "unsteady": clock.takes(1.0, 2.0)}, 1, budget_s)
    assert not found.facts()["quiet"]
    assert found.rounds == pytest.approx(max(LEAST_ROUNDS, budget_s / 2.5), abs=1)


def test_a_slow_contender_has_enough_rounds(clock: Clock) -> None:
    assert in_rounds({"": clock.takes(1000.0)}, 1, budget_s=1.0).rounds == LEAST_ROUNDS


def test_a_single_contender_is_quiet_by_its_own_times(clock: Clock) -> None:
    assert in_rounds({"": clock.takes(1.0, 1.5)}, 1, budget_s=1.0).noise > 0.3
