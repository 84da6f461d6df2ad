"""Suggested settings are keys that a recipe has, and the recipes of the R-GCN paper agree with them."""

import re
from pathlib import Path

import pytest

from jhgnn import predict, train
from jhgnn.config import Config
from jhgnn.config.command_line import OneLineParser, add_options, from_options
from jhgnn.config.recipe import load_recipe, override, to_toml
from jhgnn.config.suggested import BY_SIZE, bases_for, suggested, with_bases
from jhgnn.data import FORMATS
from jhgnn.data.__main__ import main
from tests.data import layouts

CONFIGS = Path(__file__).parents[2] / "configs"
ENTITIES = {"aifb": 8_285, "mutag": 23_644, "bgs": 333_845, "am": 1_666_764}  # the paper's Table 1
DIFFERENT = {"aifb": {"weight_decay": 0.0}, "am": {"hidden": 10}}


@pytest.mark.parametrize("data_format", FORMATS)
def test_suggestions_are_a_recipe_for_rdf_and_nothing_else(data_format):
    tables = suggested(data_format)
    assert bool(tables) == (data_format == "rdf")
    override(Config(), tables, where="suggested")


@pytest.mark.parametrize("name", ENTITIES)
def test_recipes_of_the_paper_are_as_suggested_where_their_set_is_no_exception(name):
    tables = suggested("rdf", ENTITIES[name])
    tables["data"] |= {"format": "rdf", "preset": ""}
    for section in tables.values():
        section.update({key: value for key, value in DIFFERENT.get(name, {}).items() if key in section})
    assert load_recipe(CONFIGS / f"rgcn_paper_{name}.toml") == override(Config(), tables, where="suggested")


def test_describe_shows_them(tmp_path, capsys):
    assert main(["describe", str(layouts.write(layouts.rdf(), tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "settings that suit the data" in out
    assert re.search(r"^  model\.bases +0$", out, re.MULTILINE)
    assert main(["describe", "acm", "--scale", "0.05"]) == 0
    assert "settings that suit" not in capsys.readouterr().out


def test_bases_are_those_of_the_paper():
    assert {name: bases_for(count) for name, count in ENTITIES.items()} == {"aifb": 0, "mutag": 30, "bgs": 40, "am": 40}


def written(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_data_alone_is_trained_as_suggested(tmp_path):
    config = load_recipe(written(tmp_path, '[data]\nformat = "rdf"\npath = "somewhere"\n'))
    assert config == override(
        Config(),
        {**suggested("rdf"), "data": suggested("rdf")["data"] | {"format": "rdf", "path": "somewhere"}},
        where="",
    )
    assert config.model.bases == BY_SIZE
    assert [with_bases(config, count).model.bases for count in ENTITIES.values()] == [0, 30, 40, 40]
    assert load_recipe(written(tmp_path, to_toml(config))) == config


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('[data]\nformat = "rdf"\npath = "x"\n[model]\nname = "han"\n', "dropout", 0.5),  # a model is named
        ('[data]\nformat = "rdf"\npath = "x"\n[model]\nhidden = 8\n', "hidden", 8),  # what is named goes first
        ('[data]\nformat = "rdf"\npath = "x"\n[model]\nhidden = 8\n', "name", "rgcn"),
        ('[data]\nformat = "hgb"\npath = "x"\n', "name", "han"),
        ('[data]\nformat = "rdf"\n', "name", "han"),  # no data, but the synthetic graph
    ],
)
def test_suggestions_stand_under_what_is_named(text, key, value, tmp_path):
    assert getattr(load_recipe(written(tmp_path, text)).model, key) == value


def test_options_and_recipe_are_taken_together(tmp_path):
    recipe = written(tmp_path, "[training]\nepochs = 7\n")
    parser = OneLineParser()
    add_options(parser)

    def config(*words):
        return from_options(parser.parse_args(["--config", str(recipe), "--data.path", "x", *words]))

    assert (config("--data.format", "rdf").model.name, config("--data.format", "rdf").training.epochs) == ("rgcn", 7)
    assert config("--data.format", "rdf", "--model.name", "rgat").model.layers == 0
    assert config("--data.format", "hgb").model.name == "han"


@pytest.mark.slow
def test_a_run_on_rdf_says_so_and_predicts(tmp_path, capsys):
    data = layouts.write(layouts.rdf(), tmp_path / "data")
    run = tmp_path / "run"
    assert train.main(["--data.format", "rdf", "--data.path", str(data), "--run.dir", str(run)]) == 0
    assert "suggested for rdf data: data.one_hot = True" in capsys.readouterr().err
    assert predict.main(["--run", str(run)]) == 0
