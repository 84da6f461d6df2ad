"""Rows that are reused: which they are in each turn, their age, and the weight of the gradients of the others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jhgnn.nn.reduction import Partial, alone
from jhgnn.nn.reuse import NOT_REUSED, UNMADE, KeptRows, ReusedRows, with_reused

IDS = np.array([4, -1, 0, 2, 1, 5], np.int32)


def kept(every: int = 3, *, in_turn: bool = True, version: int = 10) -> KeptRows:
    """Of vertices 0, 2, 4 and 5 among six."""
    slots = np.array([0, -1, 1, -1, 2, 3], np.int32)
    rows = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    return KeptRows(jnp.asarray(slots), jnp.asarray(rows), jnp.full(4, version, jnp.int32), every, in_turn)


@pytest.mark.parametrize("in_turn", [True, False])
def test_each_hot_vertex_is_computed_in_one_batch_of_a_super_batch(in_turn):
    computed = np.zeros(len(IDS), int)
    for number in range(6, 9):
        read = kept(in_turn=in_turn).read(jnp.asarray(IDS), jnp.uint32(number), jnp.int32(12))
        hot = np.isin(IDS, [0, 2, 4, 5])
        due = hot & ~np.asarray(read.reused)
        computed += due
        np.testing.assert_array_equal(read.weights, np.where(due, 3.0, 1.0))
        assert not np.asarray(read.reused)[~hot].any()
    np.testing.assert_array_equal(computed, np.isin(IDS, [0, 2, 4, 5]) if in_turn else 0)


def test_values_are_those_made_or_kept_and_gradients_are_weighted():
    made = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    known = jnp.full((3, 2), 9.0).at[0].set(jnp.nan)
    reused = ReusedRows(known, jnp.array([False, True, False]), jnp.array([1.0, 1.0, 4.0]))
    found = reused.into(made)
    np.testing.assert_array_equal(found, made.at[1].set(9.0))
    gradient = jax.grad(lambda x: reused.into(x).sum())(made)
    np.testing.assert_array_equal(gradient, [[1, 1], [0, 0], [4, 4]])


def test_the_sums_of_a_layer_are_taken_over_by_type():
    reused = ReusedRows(jnp.full((2, 2), 9.0), jnp.array([False, True]), jnp.ones(2))
    sums = {"paper": jnp.ones((2, 2)), "author": jnp.ones((2, 2))}
    found = with_reused({"paper": reused}, alone)(Partial(sums, "relations", 0))
    np.testing.assert_array_equal(found["paper"], [[1, 1], [9, 9]])
    np.testing.assert_array_equal(found["author"], 1)


@settings(max_examples=30, deadline=None)
@given(version=st.integers(0, 40), step=st.integers(0, 60))
def test_a_row_is_read_below_two_super_batches_of_age_and_never_else(version, step):
    read = kept(version=version, in_turn=False).read(jnp.asarray(IDS), jnp.uint32(0), jnp.int32(step))
    known = np.asarray(read.known)[np.asarray(read.reused)]
    assert np.isnan(known).all() if not 0 <= step - version < 6 else np.isfinite(known).all()
    ages = np.asarray(kept(version=version, in_turn=False).ages(jnp.asarray(IDS), jnp.uint32(0), jnp.int32(step)))
    np.testing.assert_array_equal(ages, np.where(np.isin(IDS, [0, 2, 4, 5]), step - version, NOT_REUSED))


def test_rows_that_were_never_made_are_too_old():
    unmade = dataclasses.replace(kept(), versions=jnp.full(4, UNMADE, jnp.int32))
    read = unmade.read(jnp.asarray(IDS), jnp.uint32(0), jnp.int32(0))
    assert np.isnan(np.asarray(read.known)).all()


def test_padding_changes_no_row():
    changed = kept().with_rows(jnp.array([2, -1], jnp.int32), jnp.full((2, 2), 7.0), jnp.int32(11))
    np.testing.assert_array_equal(changed.rows, kept().rows.at[2].set(7.0))
    np.testing.assert_array_equal(changed.versions, [10, 10, 11, 10])
