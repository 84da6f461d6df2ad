"""Negative samples: the same from NumPy and from a compiled step, uniform, and different for every key."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jhgnn.sampling.negatives import SIDES, negative_nodes


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from(SIDES), st.integers(1, 10**6))
def test_the_host_and_a_compiled_step_draw_the_same(seed, step, side, num_nodes):
    host = negative_nodes(seed, step, side, np.arange(40), num_nodes)
    draw = jax.jit(lambda *key: negative_nodes(*key, side, jnp.arange(40), num_nodes))
    device = draw(jnp.uint32(seed), jnp.uint32(step))
    np.testing.assert_array_equal(host, device)
    assert host.dtype == device.dtype == np.int32
    assert host.min() >= 0
    assert host.max() < num_nodes


def test_draws_are_uniform_and_differ_by_seed_step_side_and_attempt():
    drawn = negative_nodes(3, 5, "tail", np.arange(100_000), 50)
    assert stats.chisquare(np.bincount(drawn, minlength=50)).pvalue > 1e-3
    others = [
        negative_nodes(4, 5, "tail", np.arange(1000), 50),
        negative_nodes(3, 6, "tail", np.arange(1000), 50),
        negative_nodes(3, 5, "head", np.arange(1000), 50),
        negative_nodes(3, 5, "tail", np.arange(1000), 50, attempt=1),
    ]
    for other in others:
        assert 0.005 < (other == drawn[:1000]).mean() < 0.05  # as often as chance has it


def test_nothing_is_drawn_where_nothing_is_asked_for():
    assert negative_nodes(0, 0, "head", np.arange(0), 10).shape == (0,)
