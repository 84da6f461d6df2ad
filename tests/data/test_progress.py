"""Long reads are reported on stderr: a bar on a terminal, lines elsewhere, nothing when turned off or short."""

import io
import sys

import pytest

from jhgnn.data import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def report(monkeypatch, stream, *, total=20_000_000, enabled=True):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.reading("node.dat", total, enabled) as advance:
        advance(total // 4)
        advance(total - total // 4)
    return stream.getvalue()


def test_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = report(monkeypatch, io.StringIO()).splitlines()
    assert lines[:2] == ["reading node.dat: 25 %", "reading node.dat: 100 %"]
    assert lines[2].startswith("read node.dat: 20.0 MB in ")
    assert len(lines) == 3


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = report(monkeypatch, Terminal())
    assert "node.dat" in shown
    assert "20.0/20.0 MB" in shown


@pytest.mark.parametrize("changes", [{"enabled": False}, {"total": 1000}])
def test_silence(monkeypatch, changes):
    assert report(monkeypatch, io.StringIO(), **changes) == ""
    assert report(monkeypatch, Terminal(), **changes) == ""
