"""Fan-outs as recipes and command lines write them: one canonical line, read back to the same numbers."""

import pytest

from jhgnn.config import Config
from jhgnn.config.command_line import from_options
from jhgnn.config.fan_out import parse
from jhgnn.config.recipe import load_recipe, override, to_toml
from jhgnn.errors import InputError


@pytest.mark.parametrize(
    ("given", "line", "parsed"),
    [
        (10, "10", 10),
        (-1, "all", -1),
        ("all", "all", -1),
        ([25, 20], "25,20", [25, 20]),
        (["all", 5], "all,5", [-1, 5]),
        ("25, 20", "25,20", [25, 20]),
        ({"default": [25, 20], "cites": "all"}, "default=25,20; cites=all", {"default": [25, 20], "cites": -1}),
        ("a:cites:b = 3", "a:cites:b=3", {"a:cites:b": 3}),
    ],
)
def test_one_line_for_every_way_to_write_it(given, line, parsed, tmp_path):
    config = override(Config(), {"sampling": {"fan_out": given}}, where="test")
    assert config.sampling.fan_out == line
    assert parse(line, "fan_out") == parsed
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(config))
    assert load_recipe(recipe) == config


@pytest.mark.parametrize("wrong", [True, 2.5, [], [[1]], "25;20", "many", {"cites": "x"}, None, "=3"])
def test_anything_else_is_one_line(wrong):
    with pytest.raises(InputError, match=r"sampling\.fan_out") as raised:
        override(Config(), {"sampling": {"fan_out": wrong}}, where="test")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"sampling": {"batch_size": 4, "side": "device", "features": "host"}}, "change one of them"),
        ({"sampling": {"batch_size": 4}, "distributed": {"num_processes": 2}}, "give all three"),
        ({"distributed": {"coordinator": "localhost:1"}}, "set sampling.batch_size"),
    ],
)
def test_settings_that_exclude_each_other(tables, message):
    with pytest.raises(InputError, match=message):
        override(Config(), tables, where="test")


def test_command_line():
    import argparse

    options = argparse.Namespace(config=None, **{"sampling.fan_out": "15,all", "sampling.batch_size": "8"})
    sampling = from_options(options).sampling
    assert (sampling.fan_out, sampling.batch_size) == ("15,all", 8)
