"""What every store promises: rows by node type, and lazy updates that are the optimizer's own on the rows named."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from jhgnn.config import TrainingConfig
from jhgnn.graph.sparse_rows import SparseRows
from jhgnn.nn.embeddings import tables_of
from jhgnn.stores.device import DeviceRows, DeviceTables, without_tables
from jhgnn.stores.host import HostRows
from jhgnn.training.optimizer import apply_gradients, make_optimizer

KINDS = ["host", "device"]


def store_of(kind: str, tables: dict):
    return HostRows(tables) if kind == "host" else DeviceRows(jax.device_put(tables))


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.integers(-1, 8), max_size=12), st.integers(1, 4))
def test_gather_gives_the_rows_of_each_type(kind, ids, width):
    rng = np.random.default_rng(width)
    dense = rng.normal(size=(9, width)).astype(np.float32)
    matrix = sparse.random(9, 6, 0.4, random_state=width, format="csr", dtype=np.float32)
    store = store_of(kind, {"a": dense, "b": SparseRows.from_scipy(matrix)})
    assert set(store.node_types) == {"a", "b"}
    ids = np.array(ids, np.int32)
    known = ids >= 0
    np.testing.assert_array_equal(np.asarray(store.gather("a", ids))[known], dense[ids[known]])
    rows = jax.tree.map(np.asarray, store.gather("b", ids))
    found = np.zeros((len(ids), 6), np.float32)
    np.add.at(found, (np.arange(len(ids))[:, None], rows.columns), rows.values)
    np.testing.assert_allclose(found[known], matrix.toarray()[ids[known]], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_any_shape_come_back_in_it(kind):
    store = store_of(kind, {"a": np.arange(12, dtype=np.float32).reshape(6, 2)})
    rows = store.gather("a", np.array([[0, 5, -1], [2, 2, 1]], np.int32))
    assert rows.shape == (2, 3, 2)
    np.testing.assert_array_equal(np.asarray(rows)[1, 0], [4, 5])


def test_rows_of_no_id_are_zeros_on_the_host():
    store = HostRows({"a": np.ones((3, 2), np.float32)})
    np.testing.assert_array_equal(store.gather("a", np.array([-1, 2], np.int32)), [[0, 0], [1, 1]])


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "lamb"])
def test_an_update_of_every_row_is_the_dense_one(name):
    config = dataclasses.replace(TrainingConfig(), optimizer=name, learning_rate=0.05, weight_decay=0.1)
    optimizer, valid = make_optimizer(config), jnp.asarray(True)
    params = parameters()
    state = expected_state = optimizer.init(params)
    expected = params
    for step in range(3):
        gradients = jax.tree.map(lambda leaf, step=step: jnp.sin(3 * leaf + step), params)
        expected, expected_state = apply_gradients(optimizer, gradients, expected_state, expected, valid)
        order = np.random.default_rng(step).permutation(6).astype(np.int32)
        ids = {"a": order, "b": np.arange(3, dtype=np.int32)}
        params, state = lazily(optimizer, params, state, gradients, ids, valid)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), params, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), state, expected_state)


def test_rows_that_are_not_named_keep_value_and_moments_decay_included():
    config = dataclasses.replace(TrainingConfig(), optimizer="adamw", learning_rate=0.05, weight_decay=0.1)
    optimizer, params = make_optimizer(config), parameters()
    state = optimizer.init(params)
    gradients = jax.tree.map(jnp.ones_like, params)
    ids = {"a": np.array([4, -1, 1], np.int32), "b": np.full(2, -1, np.int32)}
    found, found_state = lazily(optimizer, params, state, gradients, ids, jnp.asarray(True))
    before, after = (np.asarray(tables_of(each)["a"]) for each in (params, found))
    changed = (before != after).any(axis=1)
    assert changed.tolist() == [False, True, False, False, True, False]
    np.testing.assert_array_equal(tables_of(found)["b"], tables_of(params)["b"])
    moments = [leaf for leaf in jax.tree.leaves(found_state) if leaf.shape == (6, 2)]
    assert len(moments) == 2
    for moment in moments:
        assert not np.asarray(moment)[~changed].any()
        assert np.asarray(moment)[changed].all()


@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_padding_changes_nothing(name):
    config = dataclasses.replace(TrainingConfig(), optimizer=name, learning_rate=0.05, weight_decay=0.1)
    optimizer, params = make_optimizer(config), parameters()
    state = optimizer.init(params)
    gradients = jax.tree.map(lambda leaf: jnp.sin(3 * leaf), params)
    ids = {"a": np.array([0, 4, 1], np.int32), "b": np.array([2], np.int32)}
    padded = {name: np.concatenate([[-1, -1], own, [-1]]).astype(np.int32) for name, own in ids.items()}
    for _ in range(2):  # the second one has moments
        expected = lazily(optimizer, params, state, gradients, ids, jnp.asarray(True))
        found = lazily(optimizer, params, state, gradients, padded, jnp.asarray(True))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), found, expected)
        params, state = expected


def test_an_update_that_is_not_valid_changes_nothing():
    optimizer, params = make_optimizer(TrainingConfig()), parameters()
    state = optimizer.init(params)
    gradients = jax.tree.map(lambda leaf: leaf + jnp.nan, params)
    ids = {"a": np.arange(6, dtype=np.int32), "b": np.arange(3, dtype=np.int32)}
    found = lazily(optimizer, params, state, gradients, ids, jnp.asarray(False))
    jax.tree.map(np.testing.assert_array_equal, found, (params, state))


def parameters():
    rng = np.random.default_rng(0)
    tables = {"a": rng.normal(size=(6, 2)), "b": rng.normal(size=(3, 4))}
    params = {"w": rng.normal(size=3), "embeddings": {"tables": tables}}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)


def lazily(optimizer, params, state, gradients, ids, valid, implementation="xla"):
    """Dense weights, and the rows named of each table, updated as a mini-batch step does."""
    tables = DeviceTables.of(params, state, optimizer, valid, implementation)
    dense = {"w": params["w"], "embeddings": {"tables": {}}}
    dense_gradients = {"w": gradients["w"], "embeddings": {"tables": {}}}
    made = apply_gradients(optimizer, dense_gradients, without_tables(state), dense, valid)
    for node_type, own in ids.items():
        rows = tables_of(gradients)[node_type][np.maximum(own, 0)] * (own >= 0)[:, None]
        tables = tables.apply(node_type, own, rows)
    return tables.into(*made)
