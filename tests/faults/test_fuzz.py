"""No option, recipe, file or setting that is drawn ends in a traceback; defects planted into the package are found."""

import pytest

from tests.faults.fuzz import CASES, IN_CI, TracebackError, hunt


def test_there_are_two_thousand_cases():
    assert sum(CASES.values()) >= 2000


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # a warning is no traceback; the commands print it as one line
@pytest.mark.parametrize(
    ("kind", "count"), [*IN_CI.items(), pytest.param("settings", CASES["settings"], marks=pytest.mark.long)]
)
def test_no_case_ends_in_a_traceback(kind, count):
    hunt(kind, count)


def divides(value, *_):
    return 1 // (len(str(value)) - 3)


def untried(problem):
    return 1 // (problem.config.model.name != "rgat")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("kind", "place", "defect", "error"),
    [
        ("options", "jhgnn.config.command_line.nearest", divides, "ZeroDivisionError"),
        ("files", "jhgnn.data.storage.NPY_DAMAGE", (), "data/storage.py"),
        ("settings", "jhgnn.training.size_check._num_graphs", untried, "ZeroDivisionError"),
    ],
    ids=["a message that divides by zero", "a reader that trusts headers", "a model that nobody tried"],
)  # fmt: skip
def test_planted_defects_are_found(kind, place, defect, error, monkeypatch):
    monkeypatch.setattr(place, defect)
    with pytest.raises(TracebackError, match=error):
        hunt(kind, IN_CI[kind], shrink=False)
