"""Time steps of LeapGNN's ring: merged, it gives the same gradient; tuned, the last number that was faster is taken."""

import dataclasses

import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.training.resume import with_settled
from jhgnn.training.ring_steps import TUNED, fewest_while_faster
from tests.training.agreement import execution, trained
from tests.training.test_parts import CLOSE, agreement


@pytest.fixture(scope="module")
def alone():
    return trained(execution("rgcn", "data", "", 1), 5)


@pytest.mark.slow
def test_merged_sub_batches_train_as_one_device():
    for width in ("32", "64"):
        for found in agreement(width, "rgcn", "leapgnn:1,leapgnn:3", "random", "4"):
            assert found["params"] < CLOSE, found
            assert found["gradient"] < (1e-12 if width == "64" else CLOSE), found
            assert found["same_graphs"], found


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
def test_models_move_once_less_than_there_are_steps(steps):
    made = execution("rgcn", "leapgnn", "random", 2, time_steps=steps)
    assert made.shares.num_parts == steps
    counts = {kind: each.count for kind, each in collectives(parse(made.lower_update().compile().as_text())).items()}
    assert counts.get("collective-permute", 0) == steps - 1


@pytest.mark.parametrize(
    ("seconds", "chosen", "timed"),
    [
        ({4: 4.0, 3: 3.0, 2: 3.5, 1: 1.0}, 3, [4, 3, 2]),  # the first slower one ends it, as in the published tuner
        ({4: 4.0, 3: 3.0, 2: 2.0, 1: 1.0}, 1, [4, 3, 2, 1]),
        ({4: 4.0, 3: 4.0, 2: 2.0, 1: 1.0}, 4, [4, 3]),
        ({1: 1.0}, 1, [1]),
    ],
)
def test_one_step_fewer_is_tried_while_that_is_faster(seconds, chosen, timed):
    found = fewest_while_faster(max(seconds), seconds.__getitem__)
    assert found == (chosen, {steps: seconds[steps] for steps in timed})


@pytest.mark.slow
def test_a_tuned_ring_says_what_it_took_and_a_resumed_run_takes_it_again(alone):
    made = execution("rgcn", "leapgnn", "random", 2, time_steps=TUNED)
    taken = made.config.distributed.time_steps
    assert taken in (1, 2)
    assert made.steps_chosen in made.describe()
    assert f"{taken} (tuned)" in made.steps_chosen
    asked = dataclasses.replace(made.config, distributed=dataclasses.replace(made.config.distributed, time_steps=TUNED))
    assert with_settled(asked, made.config) == made.config
    np.testing.assert_allclose(trained(made, 5)[2], alone[2], rtol=1e-5)


def test_more_steps_than_devices_and_steps_of_other_strategies_are_one_line():
    with pytest.raises(InputError, match="time_steps = 5 is over the 2 devices"):
        execution("rgcn", "leapgnn", "random", 2, time_steps=5)
    tables = {"distributed": {"strategy": "owner", "method": "random", "time_steps": 2}, "sampling": {"batch_size": 8}}
    with pytest.raises(InputError, match="is of the ring of distributed"):
        override(Config(), tables, where="recipe x")
