"""The gradients that `bench.neutronorch` takes for exact are those of batches that draw all neighbours."""

import dataclasses

import pytest

from bench.neutronorch.gradients import compare
from bench.neutronorch.problems import modes
from jhgnn.training.problem import pose
from tests.models.heterographs import academic
from tests.training.minibatches import recipe

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgat", "han"])
def test_over_all_neighbours_plain_batches_have_the_exact_gradient(name):
    config = recipe(name, sampling={"fan_out": "-1", "super_batch": 2}, layers=2)
    posed = pose(
        academic(papers=60), dataclasses.replace(config, distributed=dataclasses.replace(config.distributed, devices=1))
    )
    assert modes(posed) == ("stale", "literal")
    plain, stale, literal = compare(posed, [0.4], batches=2, draws=2, warm_up=3)
    for part in ("first_layer", "all"):
        assert plain[part]["bias"] < 1e-4
        assert plain[part]["cosine"] > 1 - 1e-6
        assert stale[part]["bias"] > 1e-3  # rows are old, and a few draws are not all turns
        assert literal[part]["norm"] != stale[part]["norm"]
