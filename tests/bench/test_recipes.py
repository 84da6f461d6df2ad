"""A stored recipe is today's, wherever its data lies and whatever options came since."""

import pytest

from bench.recipes import is_recipe
from bench.recompute_study.cases import all_cases
from jhgnn.config.recipe import to_toml


def test_a_stored_recipe_is_the_same_wherever_the_data_lies_and_before_an_option_was_there():
    (case,) = (case for case in all_cases() if case.name == "rgat_dblp")
    text = to_toml(case.config)
    elsewhere = "\n".join('path = "/elsewhere"' if line.startswith("path =") else line for line in text.splitlines())
    earlier = "\n".join(line for line in text.splitlines() if not line.startswith("time_steps ="))
    assert "/elsewhere" in elsewhere
    assert earlier != text
    assert is_recipe(text, case.config)
    assert is_recipe(elsewhere, case.config)
    assert is_recipe(earlier, case.config)
    assert not is_recipe(text.replace("hidden = 64", "hidden = 32"), case.config)
    assert not is_recipe(text + "\n[gone]\noption = 1\n", case.config)


@pytest.mark.parametrize(("name", "same"), [("rgat_dblp", True), ("rgat_mag", False)])
def test_how_batches_are_sampled_matters_to_a_stored_recipe_of_mini_batches_alone(name: str, same: bool) -> None:
    (case,) = (case for case in all_cases() if case.name == name)
    text = to_toml(case.config)
    other = text.replace("prefetch_depth = 2", "prefetch_depth = 4")
    assert other != text
    assert is_recipe(other, case.config) == same
