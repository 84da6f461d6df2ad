"""basis_rows against NumPy in float64, with gradients: shapes, empty lists, filling slots, values that dropout left."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn import native
from jhgnn.graph.one_hot_slots import OneHotSlots
from jhgnn.graph.row_groups import TILE, row_groups
from jhgnn.ops.basis_rows import basis_rows
from tests.ops import tolerances
from tests.ops.tolerances import assert_close

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels are not built")


def one_hot(rng: np.random.Generator, rows: int, features: int, held: float = 1.0) -> sparse.csr_array:
    """A table with one entry in that share of the rows, several rows to a feature; values other than 1."""
    there = np.flatnonzero(rng.random(rows) < held)
    columns = rng.integers(0, features, len(there))
    return sparse.csr_array((rng.normal(size=len(there)) + 2, (there, columns)), shape=(rows, features))


def slots_of(groups: list[np.ndarray], table: sparse.csr_array, own_rows: int) -> tuple[OneHotSlots, np.ndarray]:
    """On the host, and each slot's row, -1 in filling slots."""
    found, _ = row_groups(groups, table.shape[0])
    rows = np.where(found.used, found.rows, -1)
    matrices = np.repeat(found.matrix_of_tile, TILE)
    return OneHotSlots.of(rows, matrices, table, own_rows, len(groups)), np.append(rows, np.arange(own_rows))


def expected(
    rows: np.ndarray, matrices: np.ndarray, dense: np.ndarray, c_rb: np.ndarray, v_bio: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The result and both gradients, slot by slot from the definition; `dense` is the table."""
    z, d_c, d_v = np.zeros_like(d), np.zeros_like(c_rb), np.zeros_like(v_bio)
    for slot, (row, matrix) in enumerate(zip(rows, matrices, strict=True)):
        for feature in np.flatnonzero(dense[row]) if row >= 0 else ():
            value = dense[row, feature]
            z[slot] += value * (c_rb[matrix] @ v_bio[:, feature])
            d_c[matrix] += value * (v_bio[:, feature] @ d[slot])
            d_v[:, feature] += value * np.outer(c_rb[matrix], d[slot])
    return z, d_c, d_v


def run(
    slots: OneHotSlots, values: jax.Array, c_rb: jax.Array, v_bio: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """z and both gradients."""
    z, back = jax.vjp(lambda *factors: basis_rows(slots, values, *factors, dtype=cotangent.dtype), c_rb, v_bio)
    return z, *back(cotangent)


def check(
    groups: list[np.ndarray],
    table: sparse.csr_array,
    *,
    own_rows: int = 0,
    bases: int = 3,
    width: int = 4,
    dropped: float = 0.0,
    dtype: jnp.dtype = jnp.float32,
) -> None:
    rng = np.random.default_rng(0)
    slots, rows = slots_of(groups, table, own_rows)
    matrices = np.append(
        np.repeat(row_groups(groups, table.shape[0])[0].matrix_of_tile, TILE), np.full(own_rows, len(groups))
    )
    kept = table.copy()
    kept.data = np.where(rng.random(kept.nnz) < dropped, 0.0, kept.data)
    c_rb, v_bio = rng.normal(size=(len(groups) + 1, bases)), rng.normal(size=(bases, table.shape[1], width))
    cotangent = jnp.asarray(rng.normal(size=(slots.num_slots, width)), dtype)
    values, c_rb, v_bio = (jnp.asarray(each, jnp.float32) for each in (kept.data, c_rb, v_bio))
    z, d_c, d_v = jax.jit(run)(jax.device_put(slots), values, c_rb, v_bio, cotangent)
    assert (z.dtype, d_c.dtype, d_v.dtype) == (dtype, jnp.float32, jnp.float32)
    exact = (np.asarray(each, np.float64) for each in (c_rb, v_bio, cotangent))
    kept.data = np.asarray(values, np.float64)
    right = expected(rows, matrices, kept.toarray(), *exact)
    tolerance = tolerances.FLOAT32 if dtype == jnp.float32 else tolerances.BFLOAT16
    for found, wanted, what in zip((z, d_c, d_v), right, ("z", "d_c", "d_v"), strict=True):
        assert_close(found, wanted, tolerance, np.abs(wanted).max(initial=0.0), what)
    assert not np.asarray(z, np.float32)[rows < 0].any()
    unread = np.setdiff1d(np.arange(table.shape[1]), table.indices)
    assert not np.asarray(d_v)[:, unread].any()


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, TILE, TILE + 1, 70]), min_size=1, max_size=4),
    features=st.sampled_from([1, 9, 70, 200]),
    own_rows=st.sampled_from([0, 1, 70]),
    bases=st.sampled_from([1, 2, 17]),
    width=st.sampled_from([1, 4, 16, 19]),
    held=st.sampled_from([0.0, 0.7, 1.0]),
    dropped=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_native_agrees_with_float64(sizes, features, own_rows, bases, width, held, dropped) -> None:
    rng = np.random.default_rng(len(sizes))
    groups = [np.sort(rng.choice(70, size, replace=False)).astype(np.int32) for size in sizes]
    check(groups, one_hot(rng, 70, features, held), own_rows=own_rows, bases=bases, width=width, dropped=dropped)


@pytest.mark.parametrize("width", [1, 2, 5, 8, 10, 15, 16, 17, 32, 48, 63, 64, 65, 80, 130])
def test_native_covers_any_width(width: int) -> None:
    rng = np.random.default_rng(width)
    groups = [np.arange(0, 60, 2, np.int32), np.arange(40, dtype=np.int32)]
    for dtype in (jnp.float32, jnp.bfloat16):
        check(groups, one_hot(rng, 60, 50), own_rows=7, bases=3, width=width, dtype=dtype)


@pytest.mark.parametrize("bases", [1, 15, 16, 30, 40, 300])
def test_native_covers_any_number_of_bases(bases: int) -> None:
    """With 300, one row of all bases is larger than a tile is made."""
    rng = np.random.default_rng(bases)
    check([np.arange(30, dtype=np.int32)], one_hot(rng, 40, 40), own_rows=40, bases=bases, width=16)


def many_slots(features: int) -> tuple[list[np.ndarray], sparse.csr_array]:
    """Rows for several tasks; with 8 bases of 16 columns, those are larger than the second-level cache."""
    rng = np.random.default_rng(0)
    sizes = features // 3, 0, 5, features // 2
    groups = [np.sort(rng.choice(features, size, replace=False)).astype(np.int32) for size in sizes]
    return groups, sparse.eye_array(features, format="csr")


def inputs_of_many_slots(features: int) -> tuple[OneHotSlots, jax.Array, jax.Array, jax.Array, jax.Array]:
    """What `run` takes."""
    rng = np.random.default_rng(1)
    slots, _ = slots_of(*many_slots(features), own_rows=features)
    shapes = (5, 8), (8, features, 16), (slots.num_slots, 16)
    c_rb, v_bio, cotangent = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return jax.device_put(slots), jnp.ones(features), c_rb, v_bio, cotangent


@pytest.mark.parametrize("width", [16, 17])
def test_native_in_many_blocks(width: int) -> None:
    check(*many_slots(3_000), own_rows=300, bases=8, width=width)


def test_native_without_slots_or_matrices() -> None:
    table = sparse.eye_array(5, format="csr")
    slots = jax.device_put(slots_of([np.zeros(0, np.int32)], table, 0)[0])
    c_rb, v_bio = jnp.ones((1, 2)), jnp.ones((2, 5, 3))
    z, back = jax.vjp(lambda v: basis_rows(slots, jnp.ones(5), c_rb, v, dtype=jnp.float32), v_bio)
    assert z.shape == (0, 3)
    assert not back(z)[0].any()
    assert basis_rows(slots, jnp.ones(5), c_rb, v_bio[..., :0], dtype=jnp.float32).shape == (0, 0)


def test_what_does_not_fit_is_refused() -> None:
    table = sparse.eye_array(5, format="csr")
    slots, _ = slots_of([np.arange(2, dtype=np.int32)], table, 0)
    c_rb, v_bio, values = jnp.ones((1, 2)), jnp.ones((2, 5, 3)), jnp.ones(5)
    with pytest.raises(ValueError, match=r"basis_rows of 5 features and 2 bases got matrices \(2, 4, 3\)"):
        basis_rows(slots, values, c_rb, v_bio[:, 1:], dtype=jnp.float32)
    with pytest.raises(ValueError, match="basis_rows of a table of 5 entries got 4 values"):
        basis_rows(slots, values[1:], c_rb, v_bio, dtype=jnp.float32)
    with pytest.raises(ValueError, match="combines float32 to float32 or bfloat16 and got bfloat16"):
        basis_rows(slots, values, c_rb.astype(jnp.bfloat16), v_bio, dtype=jnp.float32)
    with pytest.raises(ValueError, match="and float16; cast"):
        basis_rows(slots, values, c_rb, v_bio, dtype=jnp.float16)
    with pytest.raises(ValueError, match="a row of these features has several entries"):
        slots_of([np.arange(2, dtype=np.int32)], sparse.csr_array(np.ones((5, 2))), 0)


def test_a_dropped_value_makes_no_nan_of_an_infinite_weight() -> None:
    slots = jax.device_put(slots_of([np.arange(2, dtype=np.int32)], sparse.eye_array(5, format="csr"), 0)[0])
    values, v_bio = jnp.ones(5).at[1].set(0.0), jnp.ones((1, 5, 3)).at[0, 1].set(jnp.inf)
    z, back = jax.vjp(lambda v: basis_rows(slots, values, jnp.ones((1, 1)), v, dtype=jnp.float32), v_bio)
    np.testing.assert_array_equal(z[:2], [[1.0] * 3, [0.0] * 3])
    np.testing.assert_array_equal(back(jnp.ones_like(z))[0][0, :2], [[1.0] * 3, [0.0] * 3])
