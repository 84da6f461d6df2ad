"""Grouped products against NumPy in float64, with gradients; dense and sparse rows, empty groups, partial tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from jhgnn import native
from jhgnn.graph.row_groups import TILE, FeatureGroups, row_groups
from jhgnn.graph.sparse_features import SparseFeatures
from jhgnn.ops.grouped_rows import grouped_matmul
from jhgnn.ops.registry import OPS

IMPLEMENTATIONS = [*(["native"] if native.available() else []), "bucketed", "segment"]
NUM_ROWS, IN_WIDTH, OUT_WIDTH = 70, 5, 6


@st.composite
def grouped(draw):
    """Rows of each group, distinct within one: none, one, or more than fill a tile."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, TILE, TILE + 1, NUM_ROWS]), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return [np.sort(rng.choice(NUM_ROWS, size, replace=False)).astype(np.int32) for size in sizes], rng


def placed(groups, implementation, table=None):
    found, slots = row_groups(groups, NUM_ROWS)
    if table is not None:
        found = found.__class__(**{**vars(found), "features": FeatureGroups.of(found, table)})
    views = OPS["neighbor_sum"].views(implementation)
    return jax.device_put(found.with_views(views, OPS["sparse_matmul"].views(implementation, SparseFeatures))), slots


def expected(x, groups, stack, weights):
    """Outputs of each group, and gradients of their sum weighted by `weights`, of x and of the stack."""
    outputs = [x[rows] @ matrix for rows, matrix in zip(groups, stack, strict=True)]
    d_x, d_stack = np.zeros_like(x), np.zeros_like(stack)
    for number, (rows, weight) in enumerate(zip(groups, weights, strict=True)):
        np.add.at(d_x, rows, weight @ stack[number].T)
        d_stack[number] = x[rows].T @ weight
    return outputs, d_x, d_stack


def product(x, groups, stack, implementation):
    return grouped_matmul(
        x,
        groups,
        stack,
        implementation=implementation,
        sparse_implementation=implementation,
        dtype=jnp.float32,
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=15, deadline=None)
@given(drawn=grouped(), is_sparse=st.booleans())
def test_products_and_gradients_are_those_of_each_group_alone(implementation, drawn, is_sparse):
    groups, rng = drawn
    x = rng.normal(size=(NUM_ROWS, IN_WIDTH)) * (rng.random((NUM_ROWS, IN_WIDTH)) < (0.4 if is_sparse else 1.0))
    stack = rng.normal(size=(len(groups), IN_WIDTH, OUT_WIDTH))
    weights = [rng.normal(size=(len(rows), OUT_WIDTH)) for rows in groups]
    x, stack = x.astype(np.float32), stack.astype(np.float32)
    table = sparse.csr_array(x) if is_sparse else None
    held, slots = placed(groups, implementation, table)
    of_slots = np.zeros((held.num_slots, OUT_WIDTH), np.float32)
    for places, weight in zip(slots, weights, strict=True):
        of_slots[places] = weight

    def total(x, stack):
        z = product(x, held, stack, implementation)
        return (z * of_slots).sum(), z

    wanted, d_x, d_stack = expected(x.astype(float), groups, stack.astype(float), [w.astype(float) for w in weights])
    if is_sparse:
        given_x = SparseFeatures.from_scipy(table).place()
        (_, z), grads = jax.value_and_grad(total, argnums=(1,), has_aux=True)(given_x, jnp.asarray(stack))
    else:
        (_, z), grads = jax.value_and_grad(total, argnums=(1, 0), has_aux=True)(jnp.asarray(x), jnp.asarray(stack))
        np.testing.assert_allclose(grads[1], d_x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grads[0], d_stack, rtol=1e-5, atol=1e-5)
    for places, rows in zip(slots, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(z)[places], rows, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused():
    held, _ = placed([np.array([0, 2], np.int32)], "segment")
    x, stack = jnp.ones((NUM_ROWS, IN_WIDTH)), jnp.ones((1, IN_WIDTH, OUT_WIDTH))
    with pytest.raises(ValueError, match="grouped of a table of 70 and got 69"):
        product(x[1:], held, stack, "segment")
    with pytest.raises(ValueError, match="grouped for 1 matrices and got 2"):
        product(x, held, jnp.concatenate([stack, stack]), "segment")
    features = SparseFeatures.from_scipy(sparse.eye_array(NUM_ROWS, IN_WIDTH, format="csr")).place()
    with pytest.raises(ValueError, match="grouped for dense features"):
        product(features, held, stack, "segment")
