"""The order in which cases are timed."""

from bench.comparison.cases import CASES, MOLECULE_CASES, TIMED


def test_what_people_look_for_is_timed_first():
    """A quick run in a fresh clone may end early: the three models on ACM and DBLP are there then."""
    assert {case.name for case in TIMED[:6]} == {
        f"{model}-{data}" for model in ("han", "rgcn", "rgat") for data in ("acm", "dblp")
    }
    assert sorted(case.name for case in TIMED) == sorted(case.name for case in (*CASES, *MOLECULE_CASES))
