"""docs/findings.md is what the measured results say, finding by finding."""

import json
from pathlib import Path

import pytest

from bench.paper import CAPTIONS, document
from bench.paper_study import modelled
from bench.paper_study.findings import ABSENT, FAILS, HOLDS, OPEN, PARTLY, all_findings, sampling_shares
from bench.paper_study.runs import planned

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results():
    return json.loads((ROOT / "bench" / "results" / "paper.json").read_text(encoding="utf-8"))


def test_every_finding_has_a_verdict(results):
    findings = all_findings(results["rows"])
    assert [finding.number for finding in findings[:22]] == [str(number) for number in range(1, 23)]
    measured = {HOLDS, FAILS, PARTLY, ABSENT, OPEN}
    assert {finding.verdict for finding in findings} <= measured | {modelled.HOLDS, modelled.FAILS, modelled.PARTLY}
    assert measured.isdisjoint({modelled.HOLDS, modelled.FAILS, modelled.PARTLY})  # the two are never mixed up
    assert all(finding.ours and finding.paper for finding in findings)


def test_the_page_is_written_from_the_results(results):
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == document(results)
    shown = [name for name in CAPTIONS if f"images/{name}" in document(results)]
    assert len(shown) >= 6
    assert all((ROOT / "docs" / "images" / name).stat().st_size > 0 for name in shown)


def test_every_planned_run_was_taken_whole_and_adds_up(results):
    assert not results["quick"]
    traced = [row for row in results["rows"] if row["group"] != "contention"]
    groups = {row["group"] for row in traced}
    assert groups >= {"pairs", "segment", "length", "number", "homogeneous"}
    wanted = [(run.group, run.name) for run in planned() if run.group in groups]
    assert [(row["group"], row["name"]) for row in traced] == wanted
    for row in traced:
        assert row["attributed"] >= 0.97, row["name"]
        assert abs(row["parts_over_measured"] - 1) < 0.05, row["name"]


def test_shares_of_a_mini_batch_step_add_up(results):
    for row in results["rows"]:
        if row["group"] == "sampled":
            shares = sampling_shares(row)
            assert sum(shares.values()) == pytest.approx(1)
            assert shares["SAMPLE"] > 0


def test_a_verdict_follows_the_figures(results):
    rows = json.loads(json.dumps(results["rows"]))
    for row in rows:
        for each in row.get("stages", []):  # the group "contention" is timed, not traced
            each["bytes"] *= {"forward": 100.0, "backward": 1.0}.get(each["direction"], 1.0)
    found = {finding.number: finding.verdict for finding in all_findings(rows)}
    assert found["7"] == FAILS
