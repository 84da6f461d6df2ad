"""Hash dropout: rate, scale, and independence of what surrounds an element."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.nn.dropout import drop_rows, site_seed


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_drops_the_rate_and_scales_the_rest(seed, rate):
    out = np.asarray(drop_rows(jnp.ones((400, 50)), jnp.uint32(seed), rate))
    kept = out != 0
    # 20,000 draws: six standard deviations around the mean.
    assert abs(kept.mean() - (1 - rate)) < 6 * np.sqrt(rate * (1 - rate) / kept.size)
    np.testing.assert_allclose(out[kept], 1 / (1 - rate), rtol=1e-6)


def test_an_element_does_not_depend_on_the_rows_after_it():
    seed = jnp.uint32(7)
    whole = drop_rows(jnp.ones((100, 8)), seed, 0.5)
    np.testing.assert_array_equal(whole[:30], drop_rows(jnp.ones((30, 8)), seed, 0.5))


def test_sites_and_seeds_draw_differently():
    ones = jnp.ones((64, 64))
    masks = [
        np.asarray(drop_rows(ones, site_seed(jnp.uint32(seed), site), 0.5) == 0)
        for seed, site in ((0, "a"), (0, "b"), (1, "a"))
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert 0.45 < (masks[first] == masks[second]).mean() < 0.55


def test_rate_zero_is_the_identity():
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(drop_rows(x, jnp.uint32(0), 0.0), x)
