"""Time steps of LeapGNN's ring: merged, it gives the same gradient; tuned, the last number that was faster is taken."""

import dataclasses

import numpy as np
import pytest

from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.profiling.collectives import collectives
from jhgnn.profiling.hlo import parse
from jhgnn.training.prepare import execution_of
from jhgnn.training.problem import pose
from jhgnn.training.resume import with_settled
from jhgnn.training.ring_steps import TUNED, fewest_while_faster
from tests.models.heterographs import academic
from tests.training.agreement import execution, max_difference, trained
from tests.training.test_parts import CLOSE


def with_steps(steps: int, devices: int = 4):
    made = execution("rgcn", "leapgnn", "random", devices)
    distributed = dataclasses.replace(made.config.distributed, time_steps=steps)
    return execution_of(pose(academic(), dataclasses.replace(made.config, distributed=distributed)))


@pytest.fixture(scope="module")
def alone():
    return trained(execution("rgcn", "data", "", 1), 5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_merged_sub_batches_train_as_one_device_with_fewer_moves(steps, alone):
    made = with_steps(steps)
    assert made.shares.num_parts == steps
    programs = made.compile()
    found = trained(made, 5, programs)
    assert max_difference(found[1].params, alone[1].params) < CLOSE
    np.testing.assert_allclose(found[2], alone[2], rtol=1e-5)
    counts = {kind: each.count for kind, each in collectives(parse(programs.step.call.as_text())).items()}
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
    made = with_steps(TUNED, devices=2)
    taken = made.config.distributed.time_steps
    assert taken in (1, 2)
    assert made.steps_chosen in made.describe()
    assert f"{taken} (tuned)" in made.steps_chosen
    asked = dataclasses.replace(made.config, distributed=dataclasses.replace(made.config.distributed, time_steps=TUNED))
    assert with_settled(asked, made.config) == made.config
    np.testing.assert_allclose(trained(made, 5)[2], alone[2], rtol=1e-5)


def test_more_steps_than_devices_and_steps_of_other_strategies_are_one_line():
    with pytest.raises(InputError, match="time_steps = 5 is over the 2 devices"):
        with_steps(5, devices=2)
    tables = {"distributed": {"strategy": "owner", "method": "random", "time_steps": 2}, "sampling": {"batch_size": 8}}
    with pytest.raises(InputError, match="is of the ring of distributed"):
        override(Config(), tables, where="recipe x")
