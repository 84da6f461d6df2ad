"""Which interleaved rounds count: those that a hypervisor left alone."""

from pathlib import Path

import pytest

from bench.comparison import rounds
from bench.comparison.rounds import QUIET_SHARE, Round, one_more, quietest, stolen_s, time_round


def disturbed(*shares: float) -> list[Round]:
    return [Round({"jhgnn": [{"epoch_s": share}]}, share) for share in shares]


def test_stolen_time_is_the_eighth_number_of_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds.os, "sysconf", lambda name: 100)
    file = tmp_path / "stat"
    file.write_text("cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert stolen_s(file) == 2.5


@pytest.mark.parametrize("text", [None, "", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 7 many\n"])
def test_a_system_that_does_not_tell(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "stat"
    if text is not None:
        file.write_text(text)
    assert stolen_s(file) == 0.0


def test_the_share_is_of_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, stolen = iter([10.0, 12.0]), iter([5.0, 5.5])
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(moments))
    timed = time_round(lambda: {"dgl": [{"epoch_s": 1.0}]}, 2, lambda: next(stolen))
    assert timed == Round({"dgl": [{"epoch_s": 1.0}]}, 0.5 / (2.0 * 2))


@pytest.mark.parametrize(
    ("shares", "extra_left_s", "goes_on"),
    [
        ((), 0.0, True),
        ((0.0, 0.0), 0.0, True),  # fewer than wanted
        ((0.5, 0.5), -60.0, True),  # the wanted ones are run whatever they take
        ((0.0, QUIET_SHARE, 0.0), 30.0, False),
        ((0.0, 2 * QUIET_SHARE, 0.0), 30.0, True),
        ((0.0, 2 * QUIET_SHARE, 0.0), 0.0, False),
        ((0.0, 2 * QUIET_SHARE, 0.0, 0.0), 30.0, False),
    ],
)
def test_disturbed_rounds_are_repeated_for_a_while(
    shares: tuple[float, ...], extra_left_s: float, goes_on: bool
) -> None:
    assert one_more(disturbed(*shares), 3, extra_left_s) is goes_on


def test_the_quietest_count() -> None:
    assert [each.stolen_share for each in quietest(disturbed(0.3, 0.0, 0.2, 0.1), 2)] == [0.0, 0.1]
    assert len(quietest(disturbed(0.3), 2)) == 1
