"""The budget search: what it chooses fits and is predicted to be fastest, and it says what the least budget is."""

import dataclasses

import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.planning.budget import candidates, fastest_that_fits, within_budget
from jhgnn.recipe import override
from jhgnn.training.compile_counter import compilations
from jhgnn.training.minibatch_problem import plan_minibatches
from jhgnn.training.reporting import Say
from tests.models.heterographs import academic
from tests.models.test_models import built, configured
from tests.training.minibatches import recipe

QUIET = Say(quiet=True)


@pytest.fixture(scope="module")
def gat(compile_cache):
    config = configured(name="gat", hidden=16)
    config = override(config, {"kernels": {"attention": "segment"}}, where="test")
    problem, _ = built(academic(papers=60), config)
    return problem, config, candidates(problem, config)


@pytest.mark.slow
def test_every_budget_gets_the_fastest_that_fits(gat):
    _, _, found = gat
    for budget in {each.needed_bytes for each in found}:
        chosen = fastest_that_fits(found, budget)
        assert chosen.needed_bytes <= budget
        assert chosen.predicted_s == min(each.predicted_s for each in found if each.needed_bytes <= budget)
    assert fastest_that_fits(found, min(each.needed_bytes for each in found) - 1) is None


@pytest.mark.slow
def test_a_second_search_compiles_nothing_and_finds_the_same(gat):
    problem, config, found = gat
    before = compilations()
    assert candidates(problem, config) == found
    assert compilations() == before


@pytest.mark.slow
def test_the_recipe_takes_over_what_was_chosen(gat):
    problem, config, found = gat
    least = min(found, key=lambda each: each.needed_bytes)
    fitted = within_budget(problem, override(config, {"training": {"memory_budget": least.needed_bytes}}, "x"), QUIET)
    assert fitted.training.memory_budget == 0
    assert fitted.training.remat in [each.remat for each in found if each.needed_bytes <= least.needed_bytes]
    assert within_budget(problem, config, QUIET) is config


@pytest.mark.slow
def test_an_impossible_budget_names_the_least(gat):
    problem, config, found = gat
    least = min(each.needed_bytes for each in found)
    with pytest.raises(InputError, match=f"the smallest possible one is {least} bytes") as caught:
        within_budget(problem, override(config, {"training": {"memory_budget": least - 1}}, "x"), QUIET)
    assert "a full batch cannot be cut" in str(caught.value)


@pytest.mark.slow
def test_mini_batches_are_cut_where_no_policy_is_enough(compile_cache):
    sampling = {"fan_out": "8", "batch_size": 256}
    config = recipe("rgat", layers=1, hidden=64, attention_dropout=0.3, sampling=sampling)
    graph = academic(papers=800, authors=500)
    graph = dataclasses.replace(graph, splits={"train": np.arange(700), "test": np.arange(700, 800)})
    problem = plan_minibatches(graph, config)
    whole = candidates(problem, config)
    least = min(each.needed_bytes for each in whole)
    budget = override(config, {"training": {"memory_budget": least - 1}}, "x")
    fitted = within_budget(problem, budget, QUIET)
    assert fitted.training.micro_batches > 1
    chosen = candidates(problem, dataclasses.replace(fitted))
    assert any(each.remat == fitted.training.remat and each.needed_bytes < least for each in chosen)
