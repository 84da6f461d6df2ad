"""Goals: met or not by their bounds, and no figure where something is missing."""

import json

import pytest

from bench.comparison.goals import NINE, Goal, goals
from bench.comparison.report import goals_table
from bench.comparison.results import FileError


def cell(epoch_ms, peak_bytes=0):
    return {"epoch_ms": epoch_ms, "process_peak_bytes": peak_bytes}


def whole():
    cells = {case: {"jhgnn": cell(1.0), "dgl": cell(16.0), "pyg": cell(40.0)} for case in NINE}
    cells["han-dblp"] = {"jhgnn": cell(1.0, 100), "dgl": cell(60.0, 1000), "pyg": cell(30.0)}
    cells["rgcn-acm"] = {"jhgnn": cell(2.0), "dgl": {"missing": "no wheel"}, "pyg": cell(8.0)}
    for case, share in (("han-mag", 0.01), ("rgcn-mag", 0.07), ("rgat-mag", 0.02)):
        modes = {"ahead": {"wait_share": share}, "in turn": {"wait_share": 0.5}}
        cells[case] = {"jhgnn": {"variant": "in turn", "modes": modes}}
    return cells


def found(cells, results):
    return {goal.what: goal for goal in goals(cells, "here", results)}


def test_the_better_peer_of_each_case_counts(tmp_path):
    by_name = found(whole(), tmp_path)
    mean = by_name["epoch, better peer / jhgnn, mean of the nine"]
    assert mean.figure == pytest.approx((16**7 * 30 * 4) ** (1 / 9))
    assert by_name["the same, HAN on ACM"].met is False
    assert by_name["the same, HAN on DBLP"].met is True
    least = by_name["the same, least of the nine"]
    assert (least.figure, least.met) == (4.0, False)
    memory = by_name["memory of HAN on DBLP, jhgnn / DGL"]
    assert (memory.figure, memory.met) == (0.1, True)
    waiting = by_name["waiting for batches made ahead, most of three models"]
    assert (waiting.figure, waiting.met) == (0.07, False)


@pytest.mark.parametrize("case", ["han-imdb", "rgat-mag"])
def test_a_part_of_the_cases_gives_no_figure_of_all(tmp_path, case):
    cells = whole()
    del cells[case]
    missing = {name for name, goal in found(cells, tmp_path).items() if goal.source == "here" and goal.figure is None}
    nine = {"epoch, better peer / jhgnn, mean of the nine", "the same, least of the nine"}
    assert missing == (nine if case in NINE else {"waiting for batches made ahead, most of three models"})


def test_studies_name_their_machine_and_absent_ones_give_no_figure(tmp_path):
    def row(case, op, over, part="forward"):
        return {"case": case, "op": op, "pass": part, "results": {"dgl": {"over_native": over}, "native": {}}}

    rows = [
        row("acm_PSP", "neighbor_attention", 9.0),
        row("acm_PSP", "neighbor_attention", 21.0, "forward + backward"),
        row("chain", "neighbor_mean", 0.9),
        row("mag_writes", "neighbor_mean", 1.5) | {"native_share_of_bound": 0.5},
        row("mag_writes", "neighbor_mean", 1.5, "forward + backward") | {"native_share_of_bound": 0.1},
        {"case": "90_relations", "op": "neighbor_mean", "pass": "forward", "results": {"native": {}}},
    ]
    (tmp_path / "ops-cpu.json").write_text(json.dumps({"machine": "m", "commit": "c", "rows": rows}))
    by_name = found({}, tmp_path)
    attention = by_name["attention, forward + backward, ACM PSP, DGL / native"]
    assert (attention.figure, attention.source) == (21.0, "`python -m bench.ops`: m; commit c")
    assert by_name["mean, DGL / native, least of all cases"].figure == 0.9
    assert by_name["mean, MAG-size, of the bandwidth bound"].figure == 0.5
    assert by_name["the same, DBLP APTPA"].row()[2:4] == ["not measured", "-"]
    assert by_name["sampling, better peer / jhgnn, least of all settings"].figure is None


@pytest.mark.parametrize(
    ("text", "why"), [("{", "Expecting"), ('{"machine": "m", "commit": "c"}', "lacks 'rows'"), ("[]", "list indices")]
)
def test_a_broken_study_is_named(tmp_path, text, why):
    (tmp_path / "sampling.json").write_text(text)
    with pytest.raises(FileError, match=rf"sampling.json: not a stored study \({why}.*run python -m bench.sampling"):
        goals({}, "here", tmp_path)


def test_a_bound_is_met_on_it():
    assert Goal("w", 5, 5.0, "s").row() == ["w", "at least 5.0", "5.0", "yes", "s"]
    assert Goal("w", 0.05, 0.06, "s", at_most=True, form="{:.0%}").row()[1:4] == ["at most 5%", "6%", "**no**"]


def test_the_stored_studies_are_read():
    table = goals_table({}, "bench/results/compare-x.json")
    assert "| mean, MAG-size, of the bandwidth bound | at least 60% | " in table
    assert table.count("not measured") == 6  # of the comparison's own, which has no cells here
