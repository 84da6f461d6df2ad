"""Rows of tables: read and written as NumPy does, whatever the ids, with and without rows of no id."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.ops.registry import names_of
from jhgnn.ops.table_rows import READ, WRITE, read_rows, write_rows
from jhgnn.runtime.platform import PLATFORMS, compiling_for


@given(st.lists(st.integers(0, 8), unique=True, max_size=9), st.integers(0, 3), st.integers(0, 3))
def test_rows_by_id(ids: list[int], padding: int, width: int) -> None:
    check("xla", np.random.default_rng(7).permutation(np.array(ids + [-1] * padding, np.int32)), width, jnp.float32)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16])
def test_any_float(dtype) -> None:
    with jax.enable_x64(dtype == jnp.float64):
        check("xla", np.array([2, -1, 0], np.int32), 3, dtype)


def check(implementation: str, ids: np.ndarray, width: int, dtype) -> None:
    """Holds an implementation against NumPy, on a table of nine rows."""
    rng = np.random.default_rng(0)
    table, new = (jnp.asarray(rng.normal(size=(rows, width)), dtype) for rows in (9, len(ids)))
    known = ids >= 0
    rows = jax.jit(lambda *given: read_rows(*given, implementation=implementation))(table, ids)
    assert rows.dtype == table.dtype
    np.testing.assert_array_equal(np.asarray(rows)[known], np.asarray(table)[ids[known]])
    expected = np.asarray(table).copy()
    expected[ids[known]] = np.asarray(new)[known]
    write = jax.jit(lambda *given: write_rows(*given, implementation=implementation), donate_argnums=0)
    np.testing.assert_array_equal(write(table, ids, new), expected)


def test_reading_and_writing_have_the_same_names() -> None:
    assert READ.names() == WRITE.names() == tuple(sorted(set(names_of("tables")) - {"auto"}))
    for platform in PLATFORMS:
        with compiling_for(platform):
            assert READ.names(platform=platform) == WRITE.names(platform=platform)
