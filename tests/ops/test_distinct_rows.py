"""distinct_rows against plain indexing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.ops.distinct_rows import distinct_rows


@pytest.mark.parametrize("ids", [[4, 0, 2], [], [0, 1, 2, 3, 4]])
def test_rows_and_their_gradient_are_those_of_indexing(ids):
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)
    ids = jnp.asarray(ids, jnp.int32)
    row_of = np.full(5, -1, np.int32)
    row_of[np.asarray(ids)] = np.arange(len(ids))
    weights = jnp.asarray(rng.normal(size=(len(ids), 3)), jnp.float32)
    found = jax.value_and_grad(lambda x: (distinct_rows(x, ids, jnp.asarray(row_of)) ** 2 * weights).sum())(table)
    expected = jax.value_and_grad(lambda x: (x[ids] ** 2 * weights).sum())(table)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
