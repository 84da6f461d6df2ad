"""Spaces as a command line writes them, and what is refused."""

import re

import pytest

from jhgnn.config import Config
from jhgnn.errors import InputError
from jhgnn.searching.space import Dimension, parse_space


def test_choices_and_ranges():
    texts = ["model.hidden=32,64", "training.learning_rate=1e-4..1e-2 log", "model.dropout=0..0.8", "model.heads=1..8"]
    assert parse_space([*texts, "model.layer_norm=true,false", "model.activation=elu, relu"], Config()) == (
        Dimension("model", "hidden", (32, 64)),
        Dimension("training", "learning_rate", low=1e-4, high=1e-2, log=True),
        Dimension("model", "dropout", low=0.0, high=0.8),
        Dimension("model", "heads", low=1, high=8),
        Dimension("model", "layer_norm", (True, False)),
        Dimension("model", "activation", ("elu", "relu")),
    )


REFUSED = {
    "model.hiden=3": r"unknown key model\.hiden; did you mean hidden",
    "modle.hidden=3": r"unknown table \[modle\]; did you mean model",
    "hidden": r"need FIELD=VALUES",
    "model.hidden=": r"need FIELD=VALUES",
    "model.hidden=32,32": r"repeats a value",
    "model.hidden=32,,64": r"repeats a value, or has an empty one",
    "model.hidden=32,wide": r"--search: model\.hidden = 'wide' must be a whole number",
    "model.dropout=0..1": r"--search: model\.dropout = 1\.0 must be below 1",
    "model.dropout=0.5..0.1": r"LOW below HIGH",
    "training.weight_decay=0..1 log": r"only where LOW is above 0",
    "model.dropout=0..0.5 linear": r"need LOW\.\.HIGH",
    "model.activation=elu..relu": r"is no range of numbers; list the choices",
    "model.hidden=a..b": r"is no range of numbers",
    "run.seed=0,1": r"\[run\] is the same for all trials; set it by --run\.seed",
    "data.seed=0,1": r"\[data\] is the same for all trials",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_dimension_is_one_line(text):
    with pytest.raises(InputError) as caught:
        parse_space([text], Config())
    assert re.search(REFUSED[text], str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_field_is_given_once_and_at_least_one_is():
    with pytest.raises(InputError, match=r"model\.hidden is given twice"):
        parse_space(["model.hidden=1,2", "model.hidden=4,8"], Config())
    with pytest.raises(InputError, match=r"names no field; give some, such as model\.hidden"):
        parse_space([], Config())
