"""docs/findings.md is what the measured results say, finding by finding."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from bench import paper
from bench.paper import CAPTIONS, contention_rows, document, key, measure, outdated
from bench.paper_study import modelled
from bench.paper_study.findings import Finding, all_findings
from bench.paper_study.runs import AGGREGATIONS, planned
from bench.paper_study.sampled import step_shares
from bench.paper_study.verdicts import ABSENT, FAILS, HOLDS, OPEN, PARTLY, of_parts, of_share
from bench.paper_study.working_trees import programs
from jhgnn.config.recipe import override, to_toml
from jhgnn.errors import InputError
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import read_problem

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results():
    return json.loads((ROOT / "bench" / "results" / "paper.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def findings(results) -> dict[str, Finding]:
    return {finding.number: finding for finding in all_findings([*results["rows"], *contention_rows()])}


def test_programs_of_a_working_tree_are_told_apart():
    recipes = [to_toml(run.config) for run in planned(quick=True)[:1]]
    other = override(planned(quick=True)[0].config, {"model": {"hidden": 24}}, "test")
    first, same, wider, refused = programs(
        ROOT, [*recipes, *recipes, to_toml(other), to_toml(other).replace('preset = "', 'preset = "no')]
    )
    assert first == same != wider
    assert refused.startswith("none: ")


def stored_rows() -> list[dict]:
    runs = planned()[:3]
    return [
        {"group": run.group, "name": run.name, "aggregation": run.aggregation, "recipe": to_toml(run.config)}
        | {"commit": "0000000", "changed": False}
        for run in runs
    ]


def test_runs_that_are_the_same_programs_become_current(monkeypatch):
    rows = stored_rows()
    monkeypatch.setattr(paper, "changed_since", lambda name, *paths: False)
    monkeypatch.setattr(paper, "_changed", lambda name: name == "0000000")
    monkeypatch.setattr(paper, "programs_at", lambda name, recipes: ["a", "b", "c"])
    monkeypatch.setattr(paper, "programs", lambda root, recipes: ["a", "B", "c"])
    assert [row["commit"] == "0000000" for row in paper.verify(rows)] == [False, True, False]


def test_runs_whose_kernels_changed_are_not_traced(monkeypatch):
    monkeypatch.setattr(paper, "changed_since", lambda name, *paths: name != "HEAD")
    monkeypatch.setattr(paper, "_changed", lambda name: True)
    monkeypatch.setattr(paper, "programs_at", lambda name, recipes: pytest.fail("traced"))
    assert {row["commit"] for row in paper.verify(stored_rows())} == {"0000000"}


def test_no_commit_is_named_for_what_is_in_none(monkeypatch):
    monkeypatch.setattr(paper, "changed_since", lambda name, *paths: name == "HEAD")
    monkeypatch.setattr(paper, "_changed", lambda name: True)
    with pytest.raises(InputError, match="the package has changes; commit them first"):
        paper.verify(stored_rows())


def test_every_finding_has_a_verdict(findings):
    assert list(findings)[:22] == [str(number) for number in range(1, 23)]
    assert list(findings)[22:] == ["6.1.1", "6.1.3", "6.2.1"]
    measured = {HOLDS, FAILS, PARTLY, ABSENT, OPEN}
    assert measured.isdisjoint({modelled.HOLDS, modelled.FAILS, modelled.PARTLY})  # the two are never mixed up
    for finding in findings.values():
        assert set(finding.judged) in ({""}, set(AGGREGATIONS))
        for judged in finding.judged.values():
            assert judged.verdict in measured | {modelled.HOLDS, modelled.FAILS, modelled.PARTLY}
            assert judged.ours
        assert finding.paper


def test_counters_of_stalls_alone_have_no_figure(findings):
    absent = [
        number for number, finding in findings.items() for each in finding.judged.values() if each.verdict == ABSENT
    ]
    assert absent == ["11", "12"]


def test_a_difference_from_the_paper_is_explained_and_agreement_is_not(findings):
    for number, finding in findings.items():
        verdicts = {each.verdict for each in finding.judged.values()}
        assert bool(finding.why) == bool(verdicts & {FAILS, PARTLY, modelled.FAILS, modelled.PARTLY}), number


def test_verdicts_of_parts_and_shares():
    assert [of_parts(parts) for parts in ([True, True], [True, False], [False])] == [HOLDS, PARTLY, FAILS]
    assert [of_share(count, 10) for count in (9, 8, 5)] == [HOLDS, PARTLY, FAILS]


def test_the_page_is_written_from_the_results(results):
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == document(results)
    shown = [name for name in CAPTIONS if f"images/{name}" in document(results)]
    assert len(shown) >= 6
    assert all((ROOT / "docs" / "images" / name).stat().st_size > 0 for name in shown)


def test_every_planned_run_was_taken_whole_and_adds_up(results):
    wanted = [run.key for run in planned()]
    assert len(set(wanted)) == len(wanted)
    taken = [key(row) for row in results["rows"]]
    assert taken == [each for each in wanted if each in taken]  # in order, each once
    assert {each for each in wanted if each[2] == "fused"} <= set(taken)
    for row in results["rows"]:
        assert row["attributed"] >= 0.97, key(row)
        assert abs(row["parts_over_measured"] - 1) < 0.05, key(row)
        if row["aggregation"] == "segment":
            storing = "fanout" if row["group"] == "sampled" else "segment"
            assert storing in row["implementations"], key(row)


KINDS_OF_RUN = {(run.group, run.aggregation, run.config.model.name): run for run in planned()}


@pytest.mark.parametrize("kind", KINDS_OF_RUN, ids=" ".join)
def test_every_kind_of_run_names_kernels_that_its_model_has(kind):
    """On a small graph: a run that cannot be prepared would end the study long after its start."""
    small = override(KINDS_OF_RUN[kind].config, {"data": {"scale": 0.02}}, where="test")
    assert execution_of(read_problem(small, progress=False)).config == small


@pytest.mark.parametrize(("row", "told"), [({}, "not measured"), ({"commit": "0000000"}, "of 0000000")])
def test_figures_older_than_the_code_are_named(results, row, told):
    first, *rest = results["rows"]
    lines = outdated([*([first | row] if row else []), *rest])
    assert any(line.startswith(f"{' '.join(key(first))}: {told}") for line in lines)


def test_a_current_row_is_not_measured_again(results, monkeypatch, capsys):
    runs = planned(quick=True)[:2]
    rows = [
        {"group": run.group, "name": run.name, "aggregation": run.aggregation, "recipe": to_toml(run.config)}
        for run in runs
    ]
    current = [row | {"commit": "HEAD", "changed": False, "noise": 0.0} for row in rows]
    monkeypatch.setattr(paper, "_changed", lambda name: name != "HEAD")
    monkeypatch.setattr(paper, "take_in_own_process", lambda run: {"taken": run.key, "noise": 0.0})
    assert list(measure(runs, current)) == []
    again = list(measure(runs, [current[0] | {"changed": True}, current[1] | {"commit": "older"}]))
    assert [row["taken"] for row in again] == [run.key for run in runs]
    other = [row | {"recipe": row["recipe"].replace("hidden = 64", "hidden = 32")} for row in current]
    assert [row["taken"] for row in measure(runs, other)] == [run.key for run in runs]
    assert list(measure(runs, current[:1])) == [{"taken": runs[1].key, "noise": 0.0}]
    assert capsys.readouterr().err.count("noise 0%") == 5


def test_a_run_whose_process_ends_early_is_named():
    (run,) = (run for run in planned(quick=True) if run.key == ("pairs", "rgcn acm", "fused"))
    assert paper.take_in_own_process(run)["recipe"] == to_toml(run.config)
    ending = dataclasses.replace(run, config=EndsItsProcess())
    with pytest.raises(InputError, match="the process of run 'pairs rgcn acm fused' ended before its profile"):
        paper.take_in_own_process(ending)


class EndsItsProcess:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (9,)


@pytest.mark.parametrize("arguments", [["--groups", "tripels"], ["--aggregation", "dgl"], ["--chek"]])
def test_a_wrong_argument_is_one_line(arguments, capsys):
    assert paper.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert arguments[-1] in error


def test_shares_of_a_mini_batch_step_add_up(results):
    for row in results["rows"]:
        if row["group"] == "sampled":
            shares = step_shares(row)
            assert sum(shares.values()) == pytest.approx(1)
            assert shares["SAMPLE"] > 0


def test_a_verdict_follows_the_figures_of_its_own_kernels(results, findings):
    rows = json.loads(json.dumps(results["rows"]))
    for row in rows:
        if row["aggregation"] == "fused":
            for each in row["stages"]:
                each["bytes"] *= {"forward": 100.0, "backward": 1.0}.get(each["direction"], 1.0)
    (found,) = (finding for finding in all_findings(rows) if finding.number == "7")
    assert found.judged["fused"].verdict == FAILS
    assert found.judged["segment"] == findings["7"].judged["segment"]


@pytest.mark.parametrize(
    ("intensities", "verdict", "backward", "alike"),
    [
        ((1.0, 1.0, 20.0), HOLDS, 20.0, HOLDS),
        ((1.0, 1.0, 5.0), PARTLY, 11.0, HOLDS),
        ((1.0, 1.0, 1.0), FAILS, 5.0, PARTLY),
        ((20.0, 1.0, 5.0), HOLDS, 13.0, PARTLY),
    ],
)
def test_an_intensity_between_the_ridges_of_the_pairs_is_on_neither_side(
    results, intensities, verdict, backward, alike
):
    rows = json.loads(json.dumps(results["rows"]))
    pairs = [row for row in rows if (row["group"], row["aggregation"]) == ("pairs", "fused")]
    for number, row in enumerate(pairs):
        row["ceilings"] = {"matmul_flops_per_s": 4.0 + number, "copy_bytes_per_s": 1.0}
        for each in row["stages"]:
            if each["stage"] in ("FP", "NA", "SF"):
                forward = intensities[("FP", "NA", "SF").index(each["stage"])]
                each["intensity"] = backward if (each["stage"], each["direction"]) == ("SF", "backward") else forward
    found = {
        number: finding.judged["fused"] for finding in all_findings(rows) if (number := finding.number) in ("5", "6")
    }
    assert found["5"].verdict == verdict
    assert "at 4.0 to 12.0" in found["5"].ours
    assert found["6"].verdict == alike


def test_a_finding_whose_runs_are_not_all_there_is_open(results):
    rows = [row for row in results["rows"] if key(row) != ("pairs", "rgat dblp", "fused")]
    found = {finding.number: finding.judged for finding in all_findings(rows)}
    assert found["1"]["fused"].verdict == OPEN
    assert found["13"]["fused"].verdict != OPEN
