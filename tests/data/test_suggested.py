"""Suggested settings are keys that a recipe has, and the recipes of the R-GCN paper agree with them."""

import re
from pathlib import Path

import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import load_recipe, override
from jhgnn.data import FORMATS
from jhgnn.data.__main__ import main
from jhgnn.data.suggested import bases_for, suggested
from jhgnn.graph.hetero_graph import HeteroGraph
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
    graph = HeteroGraph.from_arrays(num_nodes={"entity": ENTITIES[name]}, edges={})
    tables = suggested("rdf", graph)
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
