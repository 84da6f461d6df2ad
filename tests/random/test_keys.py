"""Random keys on the counter hash behave as JAX's own do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.random import keys
from jhgnn.random.counter_hash import GOLDEN, mix

SEEDS = st.integers(0, 2**31 - 1)


@pytest.mark.slow
@given(SEEDS, st.integers(0, 2**31 - 1), st.integers(1, 50))
def test_bits_are_the_hash_of_seed_fold_and_position(seed, data, size):
    def u32(value):
        return np.array(value, np.uint64).astype(np.uint32)

    with np.errstate(over="ignore"):
        state = mix(u32(seed + GOLDEN))
        state = mix(state + mix(u32(data + GOLDEN)))
        expected = mix(state + mix(np.arange(size, dtype=np.uint32)))
    folded = jax.random.fold_in(keys.key(seed), data)
    np.testing.assert_array_equal(jax.random.bits(folded, (size,)), expected)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_draws_have_the_moments_of_their_distribution(seed):
    parts = jax.random.split(keys.key(seed), 3)
    uniform, normal, other = (
        np.asarray(draw(each, (200, 500)), np.float64)
        for draw, each in zip((jax.random.uniform, jax.random.normal, jax.random.uniform), parts, strict=True)
    )
    # 100,000 draws: five standard errors of the mean, and of the correlation of neighbours and of keys.
    bound = 5 * 100_000**-0.5
    assert abs(uniform.mean() - 0.5) < bound * 12**-0.5
    assert abs(normal.mean()) < bound
    assert abs(normal.var() - 1) < bound * 2**0.5
    for a, b in ((uniform[:, 1:], uniform[:, :-1]), (uniform[1:], uniform[:-1]), (uniform, other)):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < bound


def test_keys_of_one_seed_are_distinct_and_repeat():
    first = keys.key(5)
    folded = [int(jax.random.bits(jax.random.fold_in(first, count))) for count in range(300)]
    assert len(set(folded)) == 300
    rngs, again = nnx.Rngs(params=keys.key(5)), nnx.Rngs(params=keys.key(5))
    assert [int(jax.random.bits(rngs.params())) for _ in range(4)] == [
        int(jax.random.bits(again.params())) for _ in range(4)
    ]


def test_jit_and_vmap_change_nothing():
    def draw(key):
        return jax.random.truncated_normal(key, -2.0, 2.0, (7, 3))

    key = keys.key(3)
    np.testing.assert_allclose(jax.jit(draw)(key), draw(key), rtol=1e-6)
    parts = jax.random.split(key, 4)
    np.testing.assert_allclose(jax.vmap(draw)(parts), jnp.stack([draw(each) for each in parts]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.uint16])
def test_narrow_bits_are_the_low_ones(dtype):
    key = keys.key(1)
    whole = np.asarray(jax.random.bits(key, (40,)))
    np.testing.assert_array_equal(jax.random.bits(key, (40,), dtype), whole.astype(dtype))


def test_a_width_that_is_not_there_is_an_error():
    with jax.enable_x64(True), pytest.raises(NotImplementedError, match="64 bits: need 8"):
        jax.random.bits(keys.key(1), (3,), jnp.uint64)
