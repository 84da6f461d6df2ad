"""Rows that several devices touch."""

import jax
import jax.numpy as jnp
import numpy as np

from jhgnn.stores.touched import TouchedRows, merge_devices


def test_rows_that_several_devices_touch_are_summed_once():
    ids = np.array([[3, 1, -1], [1, 5, 3]], np.int32)
    gradients = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    gradients[0, 2] = 0

    def merge(ids, gradients):
        return merge_devices({"a": TouchedRows(ids, gradients)}, {"a": 6}, "d", after=jnp.float32(1))["a"]

    merged = jax.vmap(merge, axis_name="d")(ids, gradients)
    dense = np.zeros((6, 2), np.float32)
    np.add.at(dense, ids[ids >= 0], gradients[ids >= 0])
    for device in range(2):
        own, rows = np.asarray(merged.ids[device]), np.asarray(merged.gradients[device])
        assert sorted(own[own >= 0].tolist()) == [1, 3, 5]
        np.testing.assert_array_equal(rows[own >= 0], dense[own[own >= 0]])
        assert not rows[own < 0].any()
