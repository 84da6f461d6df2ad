"""Shipped recipes by name, and files before them."""

import pytest

from jhgnn.__main__ import COMMANDS, main
from jhgnn.config.recipe import load_recipe
from jhgnn.config.shipped import find_recipe, shipped_recipes
from jhgnn.errors import InputError


def test_every_shipped_recipe_is_found_by_its_name_and_loads():
    assert {"han_acm", "rgcn_acm", "rgat_dblp"} <= shipped_recipes().keys()
    for name, path in shipped_recipes().items():
        assert find_recipe(name) == path
        load_recipe(path)


def test_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("han_acm").is_absolute()
    (tmp_path / "han_acm").write_text("[model]\nhidden = 8\n")
    assert load_recipe(find_recipe("han_acm")).model.hidden == 8


@pytest.mark.parametrize(("text", "words"), [("han_amc", "did you mean han_acm?"), ("nothing_like_it", "no recipe of")])
def test_a_name_of_neither_is_one_line(text, words):
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        find_recipe(text)


def test_the_command_lists_what_it_has_and_refuses_what_it_has_not(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert main(["tarin"]) == 2
    assert "'tarin' is none of train, predict" in capsys.readouterr().err


def test_a_command_gets_its_options(capsys):
    assert main(["train", "--config", "han_acm", "--model.hidden", "none"]) == 2
    assert "model.hidden = 'none' must be a whole number" in capsys.readouterr().err
