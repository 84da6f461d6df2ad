"""Small parameters updated as one vector get what each gets by itself, to the bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.config import TrainingConfig
from jhgnn.training.joined_leaves import FEWEST, MOST_ELEMENTS, JoinedLeaves
from jhgnn.training.optimizer import apply_gradients, apply_joined, joined_leaves, make_optimizer
from tests.compile_flags import EMITTED_AS_FOR_USERS

SHAPES = [(3, 2), (5,), (), (0, 4), (MOST_ELEMENTS + 1,), (2, 2, 2), (7, 1)]


def tree(seed: int):
    rng = np.random.default_rng(seed)
    leaves = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in SHAPES]
    return {"layers": leaves[:4], "table": {"x": leaves[4], "y": leaves[5]}, "last": leaves[6]}


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "lamb"])
@pytest.mark.parametrize("valid", [True, False])
def test_updates_are_those_of_each_leaf(optimizer, valid):
    config = dataclasses.replace(TrainingConfig(), optimizer=optimizer, weight_decay=0.01, warmup_epochs=1)
    own, found, expected = make_optimizer(config), tree(0), tree(0)
    leaves = joined_leaves(config, found)
    assert bool(leaves.small) == (optimizer != "lamb")
    state = other = own.init(found)

    @jax.jit(compiler_options=EMITTED_AS_FOR_USERS)
    def joined(gradients, state, params):
        return apply_joined(own, leaves, leaves.join(gradients), state, params, jnp.asarray(valid))

    @jax.jit(compiler_options=EMITTED_AS_FOR_USERS)
    def apart(gradients, state, params):
        return apply_gradients(own, gradients, state, params, jnp.asarray(valid))

    for step in range(3):
        found, state = joined(tree(step + 1), state, found)
        expected, other = apart(tree(step + 1), other, expected)
    assert jax.tree.structure(state) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, (found, state), (expected, other))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, MOST_ELEMENTS, MOST_ELEMENTS + 1]), max_size=9),
    halves=st.integers(0, 3),
)
def test_splitting_undoes_joining(sizes, halves):
    leaves = [jnp.arange(size, dtype=jnp.float32) for size in sizes] + [jnp.ones(2, jnp.bfloat16)] * halves
    joined = JoinedLeaves.of(leaves)
    small = sum(size <= MOST_ELEMENTS for size in sizes)
    assert len(joined.small) == (small if small >= FEWEST else 0)
    found = joined.split(joined.join(leaves))
    assert jax.tree.structure(found) == jax.tree.structure(leaves)
    jax.tree.map(np.testing.assert_array_equal, found, leaves)
