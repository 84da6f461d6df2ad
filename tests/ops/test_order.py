"""What waits for something else is the same to the bit, and XLA does not see that it need not wait."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.ops.order import after


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_values_are_the_same_to_the_bit(dtype):
    values = jnp.array([-0.0, np.nan, 3.5, -np.inf]).astype(dtype)
    for earlier in (
        jnp.array([-7.0, np.nan]),
        jnp.array([5], jnp.int32),
        [jnp.zeros(0), jnp.ones((2, 3), jnp.bfloat16)],
    ):
        found = jax.jit(after)({"a": values, "b": values[:0]}, earlier)
        words = [np.asarray(each).view(f"int{8 * each.dtype.itemsize}") for each in (found["a"], values)]
        np.testing.assert_array_equal(*words)
        assert found["b"].shape == (0,)


def test_the_compiled_program_reads_what_comes_before():
    """`earlier` is a result of its own here, which XLA would drop if nobody read it."""

    def program(values, others):
        return after(values, jnp.sort(others))

    text = jax.jit(program).lower(jnp.ones(4), jnp.ones(8)).compile().as_text()
    assert "sort" in text
