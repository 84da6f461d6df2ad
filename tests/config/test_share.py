"""A share is a number from 0 to 1 or left to a measurement; anything else is one line."""

import dataclasses

import pytest

from jhgnn.config import Config, SamplingConfig
from jhgnn.config.recipe import load_recipe, override, to_toml
from jhgnn.config.share import AUTO, to_share
from jhgnn.errors import InputError


@pytest.mark.parametrize(("value", "share"), [(0, 0.0), (1, 1.0), (0.25, 0.25), ("0.25", 0.25), ("auto", AUTO)])
def test_numbers_their_text_and_auto_are_shares(value, share):
    found = to_share(value, "here")
    assert found == share
    assert type(found) is type(share)


@pytest.mark.parametrize("value", [-0.1, 1.5, "most", "nan", True, None, [0.1], float("nan"), 10**400])
def test_anything_else_is_one_line(value):
    with pytest.raises(ValueError, match=r"^here = .* must be a number from 0 to 1, or 'auto'$"):
        to_share(value, "here")


def test_a_recipe_refuses_it_by_its_place():
    with pytest.raises(InputError, match=r"test: sampling\.hot_share = 2 must be a number from 0 to 1"):
        override(Config(), {"sampling": {"hot_share": 2}}, where="test")


@pytest.mark.parametrize("share", [AUTO, 0.0, 0.15])
def test_a_recipe_keeps_it(tmp_path, share):
    config = dataclasses.replace(Config(), sampling=SamplingConfig(hot_share=share))
    (tmp_path / "recipe.toml").write_text(to_toml(config), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.toml") == config
