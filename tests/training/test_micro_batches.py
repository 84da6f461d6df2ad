"""A batch in parts is the update of the whole batch: host or device sampler, several devices, the means of HAN."""

import dataclasses

import jax
import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from tests.models.heterographs import academic
from tests.training.minibatches import compiled, recipe, sampled, steps

CLOSE = {"rtol": 2e-5, "atol": 2e-6}
"""Float32 sums in another order, after 3 updates of plain gradient descent."""


def in_parts(config: Config, parts: int) -> Config:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, micro_batches=parts))


@pytest.mark.parametrize(
    ("name", "options", "devices", "parts"),
    [
        pytest.param("han", {}, 2, 2, marks=pytest.mark.slow),
        pytest.param("rgcn", {}, 1, 4, marks=pytest.mark.slow),
        pytest.param("han", {"layers": 2}, 2, 2, marks=pytest.mark.slow),
        pytest.param("rgat", {}, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_parts_train_as_the_whole_batch(name, options, devices, parts):
    hops = {"sampling": {"fan_out": "3,2"}} if options else {}
    graph, config = academic(), recipe(name, training={"optimizer": "sgd"}, **hops, **options)
    expected, reports = steps(compiled(graph, config, devices), 3)
    own = in_parts(config, parts)
    found, own_reports = steps(compiled(graph, own, devices), 3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), found.params, expected.params)
    np.testing.assert_allclose([r.loss for r in own_reports], [r.loss for r in reports], rtol=1e-5)
    assert [int(r.num_examples) for r in own_reports] == [8, 8, 4]


@pytest.mark.slow
def test_parts_that_the_device_samples_and_recomputes_are_those_of_the_host():
    graph, config = academic(), recipe("rgcn", training={"optimizer": "sgd"})
    expected, _ = steps(compiled(graph, config), 3)
    own = in_parts(dataclasses.replace(config, sampling=dataclasses.replace(config.sampling, side="device")), 2)
    own = dataclasses.replace(own, training=dataclasses.replace(own.training, remat="stage"))
    found, _ = steps(compiled(graph, own), 3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), found.params, expected.params)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"training": {"micro_batches": 2}}, "sampling.batch_size is 0"),
        ({"training": {"micro_batches": 3}, "sampling": {"batch_size": 8}}, "does not divide into"),
        ({"training": {"memory_budget": "1GiB", "remat": "full"}}, "leave one of them out"),
        ({"training": {"memory_budget": "much"}}, "text such as '12GiB'"),
        ({"training": {"memory_budget": -5}}, "must be a number of bytes"),
    ],
)
def test_settings_that_contradict_are_one_line(tables, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        override(Config(), tables, where="recipe x")


def test_a_batch_divides_over_devices_and_parts():
    config = in_parts(recipe("rgcn"), 8)
    with pytest.raises(InputError, match="does not divide over 2 devices of 8 micro-batches"):
        sampled(academic(), config, devices=2)


@pytest.mark.parametrize(
    ("value", "num_bytes"),
    [("12GiB", 12 * 2**30), (5000, 5000), ("1.5 MB", 1_500_000), ("1e9", 10**9), ("2gib", 2**31)],
)
def test_budgets_have_units(value, num_bytes):
    assert override(Config(), {"training": {"memory_budget": value}}, where="x").training.memory_budget == num_bytes
