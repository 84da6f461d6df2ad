"""Recipes: strict TOML, command-line overrides, one-line errors, round trips."""

import argparse
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import load_recipe, to_toml
from jhgnn.errors import InputError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


def options(*arguments: str) -> argparse.Namespace:
    parser = OneLineParser(prog="test")
    add_options(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_recipe_loads_and_names_its_model(path):
    config = load_recipe(path)
    assert path.stem.startswith(config.model.name + "_")


@pytest.mark.parametrize("path", CONFIGS[:3], ids=lambda path: path.stem)
def test_resolved_recipe_reads_back_equal(path, tmp_path):
    config = load_recipe(path)
    written = tmp_path / "resolved.toml"
    written.write_text(to_toml(config))
    assert load_recipe(written) == config


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.floats(1e-8, 1e8), st.integers(1, 10**6))
def test_any_value_survives_toml(tmp_path_factory, text, rate, epochs):
    config = Config()
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=text),
        training=dataclasses.replace(config.training, learning_rate=rate, epochs=epochs),
    )
    written = tmp_path_factory.mktemp("toml") / "recipe.toml"
    written.write_text(to_toml(config), encoding="utf-8")
    assert load_recipe(written) == config


def test_command_line_overrides_the_recipe(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nname = "rgat"\nheads = 4\n[training]\nepochs = 7\n')
    config = from_options(
        options("--config", str(recipe), "--training.epochs", "9", "--model.residual", "true", "--data.path", "007")
    )
    assert (config.model.name, config.model.heads, config.training.epochs) == ("rgat", 4, 9)
    assert config.model.residual is True
    assert config.data.path == "007"


def test_metapaths_are_strings_or_nested_lists(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\nmetapaths = ["PAP", ["paper", "subject", "paper"]]\n')
    assert load_recipe(recipe).model.metapaths == ("PAP", "paper,subject,paper")
    assert from_options(options("--model.metapaths", "PAP", "PSP")).model.metapaths == ("PAP", "PSP")


BROKEN_RECIPES = {
    "unknown table": ("[modle]\n", "unknown table [modle]; did you mean model?"),
    "unknown key": ("[model]\nheds = 8\n", "unknown key model.heds; did you mean heads?"),
    "table is a value": ("model = 3\n", "model must be a table"),
    "wrong type": ('[training]\nepochs = "many"\n', "training.epochs = 'many' must be a whole number"),
    "float for int": ("[training]\nepochs = 2.5\n", "training.epochs = 2.5 must be a whole number"),
    "bool for int": ("[training]\nepochs = true\n", "training.epochs = True must be a whole number"),
    "int for bool": ("[model]\nresidual = 1\n", "model.residual = 1 must be true or false"),
    "int for string": ("[data]\npath = 3\n", "data.path = 3 must be a string"),
    "not a choice": ('[model]\nactivation = "elo"\n', "model.activation = 'elo' is not one of"),
    "below minimum": ("[training]\nepochs = 0\n", "training.epochs = 0 must be at least 1"),
    "not above": ("[training]\nlearning_rate = 0.0\n", "training.learning_rate = 0.0 must be above 0"),
    "too large": ("[data]\nscale = 1.5\n", "data.scale = 1.5 must be at most 1"),
    "dropout of one": ("[model]\ndropout = 1.0\n", "model.dropout = 1.0 must be below 1"),
    "not a number": ("[training]\nlearning_rate = nan\n", "must be a finite number"),
    "infinite": ("[training]\nlearning_rate = inf\n", "must be a finite number"),
    "list wanted": ('[model]\nmetapaths = "PAP"\n', "model.metapaths = 'PAP' must be a list of strings"),
    "list of numbers": ("[model]\nmetapaths = [1, 2]\n", "model.metapaths holds 1"),
    "not TOML": ("[model\n", "not TOML"),
    "bases and blocks": ('[model]\nname = "rgcn"\nbases = 2\nblocks = 2\n', "set one of them to 0"),
    "blocks do not divide": ('[model]\nname = "rgcn"\nblocks = 7\n', "not a multiple of model.blocks = 7"),
}


@pytest.mark.parametrize("case", BROKEN_RECIPES)
def test_broken_recipe_is_one_line_with_file_and_key(case, tmp_path):
    text, expected = BROKEN_RECIPES[case]
    recipe = tmp_path / "broken.toml"
    recipe.write_text(text)
    with pytest.raises(InputError) as raised:
        load_recipe(recipe)
    message = str(raised.value)
    assert expected in message
    assert str(recipe) in message
    assert "\n" not in message


def test_recipe_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_recipe(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_recipe(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model.heds", "3"], "unknown option --model.heds; did you mean --model.heads?"),
        (["--model.heads", "many"], "command line: model.heads = 'many' must be a whole number"),
        (["--model.heads"], "expected one argument"),
        (["--training.epochs", "-3"], "training.epochs = -3 must be at least 1"),
        (["stray"], "unknown option stray"),
    ],
)
def test_broken_command_line_is_one_line(arguments, expected):
    with pytest.raises(InputError) as raised:
        from_options(options(*arguments))
    assert expected in str(raised.value)


def test_help_documents_every_field(capsys):
    with pytest.raises(SystemExit):
        options("--help")
    text = " ".join(capsys.readouterr().out.split())
    for section in dataclasses.fields(Config):
        for field in dataclasses.fields(section.type):
            assert f"--{section.name}.{field.name} " in text
            assert field.metadata["help"].split(";")[0][:30] in text
