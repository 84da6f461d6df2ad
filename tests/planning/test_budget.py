"""The budget search: what it chooses fits and is predicted to be fastest, and it says what the least budget is."""

import dataclasses

import numpy as np
import pytest

from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.planning.analysis import Analysis
from jhgnn.planning.budget import (
    Candidate,
    candidate_of,
    candidates,
    fastest_that_fits,
    told_of_times,
    within_budget,
)
from jhgnn.planning.work import Work
from jhgnn.runtime.compile_counter import compilations
from jhgnn.runtime.console import Say
from tests.executions import configured, whole
from tests.models.heterographs import academic
from tests.training.minibatches import recipe, sampled

QUIET = Say(quiet=True)


@pytest.fixture(scope="module")
def gat(compile_cache):
    config = configured(name="gat", hidden=16)
    config = override(config, {"kernels": {"attention": "segment"}}, where="test")
    execution = whole(academic(papers=60), config)
    return execution, candidates(execution)


@pytest.mark.slow
def test_every_budget_gets_the_fastest_that_fits(gat):
    _, found = gat
    for budget in {each.needed_bytes for each in found}:
        chosen = fastest_that_fits(found, budget)
        assert chosen.needed_bytes <= budget
        assert chosen.predicted_s == min(each.predicted_s for each in found if each.needed_bytes <= budget)
    assert fastest_that_fits(found, min(each.needed_bytes for each in found) - 1) is None


@pytest.mark.slow
def test_a_second_search_compiles_nothing_and_finds_the_same(gat):
    execution, found = gat
    before = compilations()
    assert candidates(execution) == found
    assert compilations() == before


def test_it_says_which_policies_predicted_times_cannot_tell_apart():
    def candidate(remat: str, needed: int, seconds: float) -> Candidate:
        return Candidate(remat, 1, 0, Analysis(0, needed, 0, 0, Work(flops=seconds)), None, seconds)

    none, near, far = candidate("none", 10, 1.0), candidate("stage", 8, 1.05), candidate("full", 6, 4.0)
    same = dataclasses.replace(none, remat="na")
    found = [none, same, near, far]
    told = told_of_times(found, none, 10, "cpu")
    assert told.startswith("predicted times cannot tell none from stage: in one of ten pairs")
    assert told_of_times([none, same, far], none, 10, "cpu") == ""
    assert told_of_times(found, near, 8, "cpu") == ""
    assert "assumed for this device, not measured" in told_of_times(found, none, 10, "gpu")
    assert told_of_times([none, same], none, 10, "gpu") == ""


@pytest.mark.slow
def test_the_recipe_takes_over_what_was_chosen(gat):
    execution, found = gat
    least = min(found, key=lambda each: each.needed_bytes)
    fitted = within_budget(execution.with_training(memory_budget=least.needed_bytes), QUIET).config
    assert fitted.training.memory_budget == 0
    assert fitted.training.remat in [each.remat for each in found if each.needed_bytes <= least.needed_bytes]
    assert within_budget(execution, QUIET) is execution


@pytest.mark.slow
def test_an_impossible_budget_names_the_least(gat):
    execution, found = gat
    least = min(each.needed_bytes for each in found)
    with pytest.raises(InputError, match=f"the smallest possible one is {least} bytes") as caught:
        within_budget(execution.with_training(memory_budget=least - 1), QUIET)
    assert "a full batch cannot be cut" in str(caught.value)


@pytest.mark.slow
def test_programs_that_are_compiled_are_the_candidate_of_their_policy(compile_cache):
    execution = whole(academic(), configured(name="rgcn")).with_training(remat="full")
    found = {each.remat: each for each in candidates(execution)}
    assert candidate_of(execution.compile()) == found["full"]


@pytest.mark.slow
def test_mini_batches_are_cut_where_no_policy_is_enough(compile_cache):
    sampling = {"fan_out": "8", "batch_size": 256}
    config = recipe("rgat", layers=1, hidden=64, attention_dropout=0.3, sampling=sampling)
    graph = academic(papers=800, authors=500)
    graph = dataclasses.replace(graph, splits={"train": np.arange(700), "test": np.arange(700, 800)})
    execution = sampled(graph, config)
    least = min(each.needed_bytes for each in candidates(execution))
    fitted = within_budget(execution.with_training(memory_budget=least - 1), QUIET)
    training = fitted.config.training
    assert training.micro_batches > 1
    assert any(each.remat == training.remat and each.needed_bytes < least for each in candidates(fitted))
