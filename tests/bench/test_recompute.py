"""The recompute study: rounds, choices within budgets, rates, predicted times, and the page that results make."""

import itertools
import json
import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import recompute
from bench.gpu.devices import GPUS
from bench.recompute_study import answers, gpus
from bench.recompute_study.budgets import choices, frontier, median_s, out_of_order
from bench.recompute_study.cases import StudyCase, all_cases
from bench.recompute_study.figures import figures
from bench.recompute_study.fit import predicted_with, rates_of, ratio_error, searched
from bench.recompute_study.page import document
from bench.recompute_study.rounds import FEWEST, LONG_S, NOISE, noise, take_rounds
from bench.record import ROOT
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.planning.time_model import KINDS, OPERATIONS, RATIO_ERRORS, SECONDS

PLOTS = ("recompute_pareto.png", "recompute_fused.png", "recompute_nodes.png")


def row(remat: str, needed: int, seconds: float, **changes) -> dict:
    found = {"implementation": "native", "dtype": "float32", "micro_batches": 1, "remat": remat}
    found |= {"program": remat, "needed_bytes": needed, "temp_bytes": needed, "steps_s": [seconds] * 6}
    return found | changes


def test_the_pages_are_written_from_the_stored_results():
    text, every = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("recompute.md", "recompute_figures.md")
    )
    assert text == document(recompute.stored())
    assert every == figures(recompute.stored())
    assert "not looked at" not in every  # so each pair that is out of order in memory has its tensors
    shown = [name for name in PLOTS if f"images/{name}" in text]
    assert len(shown) == len(PLOTS)
    assert all((ROOT / "docs" / "images" / name).stat().st_size > 0 for name in shown)


def test_every_case_of_the_study_has_a_recipe():
    names = [case.name for case in all_cases()]
    wanted = {f"{model}_{data}" for model in ("han", "rgcn", "rgat") for data in ("acm", "imdb", "dblp", "aifb", "mag")}
    assert set(names) == wanted | {f"{model}_mag_whole" for model in ("han", "rgcn", "rgat")}
    assert len(names) == len(set(names))
    assert all(bool(case.config.sampling.batch_size) == case.name.endswith("_mag") for case in all_cases())


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=60), st.floats(0.01, 100.0))
def test_noise_has_no_unit_and_one_outlier_of_many_does_not_make_it(steps, unit):
    assert noise([unit * each for each in steps]) == pytest.approx(noise(steps), rel=1e-6, abs=1e-9)
    assert noise([1.0] * 30 + [50.0 * max(steps)]) == 0.0
    assert noise([1.0, 1.2]) == pytest.approx(0.1 / 1.1)
    assert math.isinf(noise([1.0]))


def test_rounds_end_when_medians_are_known_or_time_is_up():
    now = itertools.count()
    steady, wild = itertools.repeat(0.1), itertools.cycle([0.1, 0.3])
    told = []
    times = take_rounds({"steady": lambda: next(steady)}, 1e9, told.append, clock=lambda: 0.0)
    assert times == {"steady": [0.1] * FEWEST}
    assert len(told) == FEWEST + 1
    times = take_rounds({"wild": lambda: next(wild)}, 20.0, told.append, clock=lambda: float(next(now)))
    assert len(times["wild"]) >= 20
    assert noise(times["wild"]) >= NOISE


def test_the_first_of_long_steps_counts_and_three_are_enough():
    long, short = itertools.repeat(LONG_S), itertools.chain([LONG_S / 2], itertools.repeat(0.1))
    steps = {"long": lambda: next(long), "short": lambda: next(short)}
    times = take_rounds(steps, 0.0, lambda _: None, clock=itertools.count().__next__)
    assert times["short"] == [0.1] * FEWEST
    assert times["long"] == [LONG_S] * (FEWEST + 1)
    alone = take_rounds({"long": lambda: next(long)}, 0.0, lambda _: None, clock=itertools.count().__next__)
    assert alone["long"] == [LONG_S] * 3


def test_a_choice_is_held_against_all_that_fits():
    rows = [row("none", 100, 1.0), row("stage", 60, 1.2), row("full", 50, 1.1), row("full", 20, 3.0, micro_batches=4)]
    predicted = {100: 1.0, 60: 1.2, 50: 1.3, 20: 0.1}
    found = choices(rows, lambda each: predicted[each["needed_bytes"]])
    assert [(each["budget_bytes"], each["chosen"], each["fastest"]) for each in found] == [
        (20, "full, 4 micro-batches", "full, 4 micro-batches"),
        (50, "full", "full"),
        (60, "stage", "full"),
        (100, "none", "none"),
    ]
    assert [each["regret"] for each in found] == pytest.approx([0, 0, 1.2 / 1.1 - 1, 0])


def test_the_frontier_has_what_nothing_beats():
    rows = [row("none", 100, 1.0), row("dots", 90, 1.5), row("stage", 60, 1.2), row("full", 70, 2.0)]
    assert [each["remat"] for each in frontier(rows)] == ["none", "stage"]


def test_programs_out_of_order_in_memory_are_found_once():
    rows = [row("none", 100, 1.0), row("na", 100, 1.0), row("dots", 60, 1.5), row("stage", 60, 1.2)]
    rows += [row("full", 70, 2.0), row("none", 40, 1.0, dtype="bfloat16"), row("full", 90, 1.0, dtype="bfloat16")]
    for each in rows:
        each["program"] = f"{each['dtype']} {each['temp_bytes']}"  # so `dots` is `stage`, and `na` is `none`
    found = [(more["remat"], less["remat"], less["dtype"]) for more, less in out_of_order(rows)]
    assert found == [("stage", "full", "float32")]
    assert out_of_order(rows[:-3]) == []


def planted(case: str, works: list[dict]) -> dict:
    """A case whose steps take what planted rates say."""
    rows = []
    for number, given_work in enumerate(works):
        work = dict.fromkeys(KINDS, 0.0) | given_work
        temp_bytes = work.pop("temp_bytes")
        seconds = 2e-9 * (work["flops"] + work["dot_flops"])
        rows.append(row("none", number, seconds, program=f"{case}{number}", work=work, temp_bytes=temp_bytes))
    return {"case": case, "parts": {"cpu": {"rows": rows}}}


def test_the_rate_is_found_again():
    one = planted("one", [{"flops": 1e6, "temp_bytes": 3e7}, {"flops": 3e6, "dot_flops": 2e6, "temp_bytes": 1e6}])
    two = planted("two", [{"flops": 2e6, "temp_bytes": 1e5}, {"flops": 1e5, "temp_bytes": 1e7}])
    rates = rates_of([one, two])
    assert rates == pytest.approx(dict.fromkeys(OPERATIONS, 2e-9), rel=1e-2)
    for each in one["parts"]["cpu"]["rows"]:
        assert predicted_with(rates, each) == pytest.approx(median_s(each), rel=1e-2)
    assert rates_of([]) == {}


def test_a_search_takes_the_fewest_operations_of_what_fits():
    one = planted("one", [{"flops": 5e6}, {"flops": 3e6, "dot_flops": 1e6}, {"flops": 9e6}])
    for number, each in enumerate(one["parts"]["cpu"]["rows"]):
        each["remat"] = f"way {number}"
    found = searched([one, {"case": "other", "parts": {}}])
    assert list(found) == ["one"]
    assert [each["chosen"] for each in found["one"]] == ["way 0", "way 1", "way 1"]
    assert [each["regret"] for each in found["one"]] == [0, 0, 0]


def test_how_a_process_ended_is_told(capfd):
    assert recompute.run("json.tool", "--help")[1] == ""
    output, failure = recompute.run("bench.recompute_study.cell", "no_such_recipe")
    assert output == ""
    assert failure.startswith("its process ended with status 1 after ")
    assert failure in capfd.readouterr().err


def test_what_a_budget_search_says_of_its_rates_is_what_was_measured():
    measured = ratio_error(recompute.stored(), SECONDS["cpu"])
    assert RATIO_ERRORS["cpu"] == pytest.approx(measured, abs=0.005)


def test_a_predicted_time_is_the_formula():
    device = GPUS["a100"]
    work = dict.fromkeys(KINDS, 0.0) | {"num_bytes": 1e9, "native_bytes": 1e9, "scattered": 1e6, "dot_flops": 1e6}
    found = gpus.predicted_s({"work": work, "launches": 10, "dtype": "float32"}, "a100")
    assert found == pytest.approx(10 * 5e-6 + 2e9 / (0.7 * device.bytes_per_s) + 1e6 * 5e-12)
    by_products = work | {"num_bytes": 0.0, "native_bytes": 0.0, "scattered": 0.0, "dot_flops": 156e9}
    found = gpus.predicted_s({"work": by_products, "launches": 0, "dtype": "float32"}, "a100")
    assert found == pytest.approx(2e-3)


def test_more_nodes_fit_when_a_step_may_take_longer():
    rows = [row("none", 100, 1.0), row("stage", 50, 1.25), row("full", 20, 3.0)]
    found = answers.more_nodes(rows, "native", median_s)
    assert {factor: (times, each["remat"]) for factor, (times, each) in found.items()} == {
        1.1: (1.0, "none"),
        1.3: (2.0, "stage"),
        2.0: (2.0, "stage"),
    }


def test_what_does_not_grow_counts_as_a_page():
    flat, grown = ({"before_bytes": 10**6, "steps_peak_bytes": 10**6 + num} for num in (0, 8192))
    assert answers.growth_ratio(grown, flat) == 2.0
    assert answers.growth_ratio(flat, grown) == 0.5
    assert answers.growth_ratio(flat, flat) == 1.0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --all, --cases NAME or --config RECIPE"),
        (["--cases", "rgcn_acn"], "rgcn_acn"),
        (["--all", "--parts", "gpu"], "gpu"),
        (["--al"], "did you mean --all"),
        (["--config", "none_such"], "none_such"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments, told, capsys):
    assert recompute.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert told in error


def test_check_names_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recompute, "RESULTS", tmp_path)
    assert recompute.check() == 1
    told = capsys.readouterr()
    assert "rgcn_acm cpu: not measured" in told.err.splitlines()
    assert told.out == f"0 of {len(all_cases()) * len(recompute.PARTS)} parts are current\n"


@pytest.mark.slow
def test_a_recipe_is_measured_stored_and_drawn_and_not_measured_again(tmp_path, monkeypatch, capsys):
    """From a recipe to the page, on a small synthetic graph; then nothing is left to do."""
    monkeypatch.setattr(recompute, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(recompute, "DOCS", tmp_path)
    monkeypatch.setattr(recompute, "changed_since", lambda *_: False)
    recipe = ["--config", "rgat_acm", "--data.scale", "0.05", "--model.hidden", "8", "--name", "small"]
    assert recompute.main([*recipe, "--parts", "peaks"]) == 2
    assert "which is not measured; give both" in capsys.readouterr().err
    command = [*recipe, "--parts", "cpu", "peaks", "--rounds-s", "0", "--implementations", "native", "segment"]
    assert recompute.main(command) == 0
    result = json.loads((tmp_path / "results" / "small.json").read_text(encoding="utf-8"))
    rows = result["parts"]["cpu"]["rows"]
    assert {each["implementation"] for each in rows} == {"native", "segment"}
    assert {each["dtype"] for each in rows} == {"float32", "bfloat16"}
    for each in rows:
        assert len(each["steps_s"]) >= FEWEST
        assert each["steps_peak_bytes"] >= each["before_bytes"] > 0
    by = {(each["implementation"], each["dtype"], each["remat"]): each for each in rows}
    assert by["segment", "float32", "full"]["temp_bytes"] < by["segment", "float32", "none"]["temp_bytes"]
    peaks = [(recompute.key_of(each), each["keeps_more"]) for each in result["parts"]["peaks"]["rows"]]
    assert peaks == [(recompute.key_of(second), first["remat"]) for first, second in out_of_order(rows)]
    assert peaks  # or this graph shows nothing of them
    case = StudyCase("small", override(Config(), tomllib.loads(result["recipe"]), where="test"))
    assert recompute.traced(case, "cpu", ["native"]) == {
        recompute.key_of(each): each["program"] for each in rows if each["implementation"] == "native"
    }
    assert "| small |" in (tmp_path / "recompute.md").read_text(encoding="utf-8")
    assert "## small" in (tmp_path / "recompute_figures.md").read_text(encoding="utf-8")
    assert all((tmp_path / "images" / name).stat().st_size > 0 for name in PLOTS)
    capsys.readouterr()
    assert recompute.main(command) == 0
    assert "took" not in capsys.readouterr().out
