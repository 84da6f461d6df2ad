"""indexed_rows and rows_at against plain indexing, as they are on a CPU and as they are on a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.ops.indexed_rows import indexed_rows, rows_at, summed_rows
from jhgnn.runtime.platform import compiling_for


def found_and_expected(function, table):
    """(values, gradients) of a function of the table and of what it should be, with the program of a GPU."""
    with compiling_for("cuda"):
        return [jax.jit(jax.value_and_grad(lambda x, each=each: jnp.sin(each(x)).sum()))(table) for each in function]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_repeated_rows_sum_their_gradients(count: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(11, *shape)), jnp.float32)
    ids = jnp.asarray(rng.integers(0, 11, count), jnp.int32).at[: count // 2].set(7)
    own, exact = found_and_expected([lambda x: indexed_rows(x, ids), lambda x: x[ids]], table)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), own, exact)


@pytest.mark.parametrize("count", [0, 1, 500])
def test_sums_by_id_are_those_of_a_scatter(count: int) -> None:
    rng = np.random.default_rng(0)
    values, ids = (
        jnp.asarray(rng.normal(size=(count, 3)), jnp.float32),
        jnp.asarray(rng.integers(0, 7, count), jnp.int32),
    )
    exact = np.zeros((8, 3))
    np.add.at(exact, np.asarray(ids), np.asarray(values, np.float64))
    np.testing.assert_allclose(summed_rows(values, ids, 8), exact, atol=1e-5)
    with compiling_for("cuda"):
        np.testing.assert_allclose(jax.jit(lambda v: summed_rows(v, ids, 8))(values), exact, atol=1e-5)


def test_a_hub_of_bfloat16_rows_is_summed_in_float32() -> None:
    table, ids = jnp.ones((4, 2), jnp.bfloat16), jnp.zeros(4096, jnp.int32)
    with compiling_for("cuda"):
        gradient = jax.jit(jax.grad(lambda x: indexed_rows(x, ids).astype(jnp.float32).sum()))(table)
    np.testing.assert_array_equal(gradient, np.array([[4096] * 2] + [[0] * 2] * 3))


@pytest.mark.parametrize("places", [[], [2], [1, 2, 3], [3, 0, 4]])
def test_rows_at_static_places(places: list[int]) -> None:
    table = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2, 3)), jnp.float32)
    exact = [lambda x: x[np.array(places, int)]]
    own, expected = found_and_expected([lambda x: rows_at(x, places), *exact], table)
    jax.tree.map(np.testing.assert_array_equal, own, expected)


def test_only_integers_are_scattered_for_a_gpu() -> None:
    table, ids = jnp.ones((5, 3)), jnp.array([1, 1, 4])
    program = jax.grad(lambda x: (indexed_rows(x, ids).sum() + rows_at(x, [3, 0])).sum())
    assert "scatter-add" in str(jax.make_jaxpr(program)(table))
    with compiling_for("cuda"):
        made = [line.split("=")[0] for line in str(jax.make_jaxpr(program)(table)).splitlines() if "= scatter" in line]
    assert made
    assert all(":i32" in each for each in made)
