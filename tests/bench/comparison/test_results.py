"""Stored results: resumed, replaced, compared with the run before."""

import pytest

from bench.comparison.results import FileError, Results, slower, spread

HEADER = {"machine": {}, "settings": {"quick": True}, "commit": "", "missing": {}}


def test_an_interrupted_run_resumes_and_a_complete_one_becomes_the_previous(tmp_path):
    path = tmp_path / "r.json"
    first = Results(path)
    assert not first.begin(HEADER, fresh=False)
    first.data["cells"]["han-acm"] = {"jhgnn": {"epoch_ms": 1.0, "spread": 0.0}}
    first.save()
    second = Results(path)
    assert second.begin(HEADER | {"commit": "2222222"}, fresh=False)
    assert second.begin(HEADER | {"commit": "2222222"}, fresh=False)
    assert (second.data["commit"], second.data["resumed_at"]) == ("", ["2222222"])
    assert "han-acm" in second.data["cells"]
    second.data["complete"] = True
    second.save()
    third = Results(path)
    assert not third.begin(HEADER, fresh=False)
    assert third.data["cells"] == {}
    assert "han-acm" in third.data["previous"]


def test_what_a_quick_pass_stored_is_provisional_until_it_is_measured_whole(tmp_path):
    results = Results(tmp_path / "r.json")
    results.begin(HEADER, fresh=False)
    results.store("han-acm", {"jhgnn": {"epoch_ms": 2.0}}, provisional=True)
    assert Results(results.path).provisional == ["han-acm"]
    results.store("han-acm", {"jhgnn": {"epoch_ms": 1.0}})
    assert Results(results.path).provisional == []
    assert Results(results.path).data["cells"]["han-acm"]["jhgnn"]["epoch_ms"] == 1.0


@pytest.mark.parametrize(("now", "flagged"), [(1.05, 0), (1.25, 1)])
def test_only_more_than_noise_is_flagged(now, flagged):
    before = {"c": {"jhgnn": {"epoch_ms": 1.0, "spread": 0.02}, "dgl": {"epoch_ms": 1.0, "spread": 0.0}}}
    after = {"c": {"jhgnn": {"epoch_ms": now, "spread": 0.02}, "dgl": {"epoch_ms": 9.0, "spread": 0.0}}}
    assert len(slower(after, before)) == flagged


def test_a_slower_mini_batch_is_flagged():
    def cell(ms):
        return {"c-mag": {"jhgnn": {"modes": {"ahead": {"batch_ms": ms, "spread": 0.02}, "in turn": {"failed": "x"}}}}}

    assert slower(cell(1.05), cell(1.0)) == []
    assert slower(cell(1.5), cell(1.0)) == ["c-mag jhgnn: 1.50 ms a batch ahead, 1.00 before (+50%, noise 10%)"]


def test_spread_of_few_values():
    assert spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(0.25)


@pytest.mark.parametrize("text", ['{"cells": {"han-acm"', "[]", '{"cells": 3}'])
def test_a_broken_result_is_refused(text, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"r\.json: not a stored comparison"):
        Results(path)
