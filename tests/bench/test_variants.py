"""`bench.variants` trains one recipe with several values of a field, and compares each with the first."""

import json
import sys

import pytest

from bench.variants import main, parse, variants
from jhgnn.errors import InputError

RECIPE = ("--config", "configs/rgcn_mag.toml", "--data.scale", "0.002", "--sampling.batch_size", "16")


def test_every_value_is_in_a_recipe_of_its_own():
    found = variants(parse([*RECIPE, "--vary", "sampling.threads=1,2,1"]))
    assert {name: config.sampling.threads for name, config in found.items()} == {"1": 1, "2": 2}
    assert {config.sampling.batch_size for config in found.values()} == {16}


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("sampling.threads=1", "need FIELD=VALUE,VALUE"),
        ("sampling.threads", "need FIELD=VALUE,VALUE"),
        ("sampling.threads=1,two", r"sampling\.threads = 'two'"),
        ("sampling.thread=1,2", r"'sampling\.thread' is no field of a recipe.*sampling\.threads"),
    ],
)
def test_what_cannot_be_varied_is_one_line(vary, message):
    with pytest.raises(InputError, match=message) as caught:
        variants(parse([*RECIPE, "--vary", vary]))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_ratios_are_to_the_first_value(tmp_path, monkeypatch, capsys):
    out = tmp_path / "variants.json"
    options = ("--vary", "sampling.feature_dtype=float32,bfloat16", "--steps", "2", "--rounds", "2", "--out", str(out))
    monkeypatch.setattr(sys, "argv", ["bench.variants", *RECIPE, "--distributed.devices", "1", *options])
    assert main() == 0
    found = json.loads(out.read_text())["values"]
    assert list(found) == ["float32", "bfloat16"]
    assert found["float32"]["times_first_by_round"] == [1.0, 1.0]
    assert found["bfloat16"]["times_first"] > 0
    assert "bfloat16" in capsys.readouterr().out
