"""Checkpoints: complete or absent, broken ones named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jhgnn.errors import InputError
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.state import TrainState


def state(value: float) -> TrainState:
    params = {"layers": {0: {"w": jnp.full((3, 2), value)}, 1: {"b": jnp.arange(4.0)}}}
    moments = jax.tree.map(lambda leaf: leaf * 2, params)
    return TrainState(jnp.asarray(int(value), jnp.int32), jnp.asarray(7, jnp.uint32), params, (moments, {}))


def test_round_trip_is_exact_and_keeps_the_two_newest(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    assert not store.exists()
    for epoch in (0, 1, 2):
        best = state(epoch * 10).params
        store.save(state(epoch), best, Progress(epoch, best_epoch=epoch, best_value=float("inf"), recipe="x = 1"))
    loaded = store.load(state(0))
    assert loaded.progress == Progress(2, 2, float("inf"), 0, "x = 1")
    for found, expected in (
        (loaded.state, state(2)),
        (loaded.best_params, state(20).params),
        (store.load_best_params(state(0).params), state(20).params),
    ):
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["epoch-00000001", "epoch-00000002"]


def test_incomplete_checkpoint_is_not_there(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(state(1), state(1).params, Progress(1))
    (tmp_path / "checkpoints" / "epoch-00000009").mkdir()  # what a kill before the rename leaves, at worst
    assert store.progress().epoch == 1


def test_nothing_to_load_is_one_line(tmp_path):
    with pytest.raises(InputError, match="holds no complete checkpoint"):
        CheckpointStore(tmp_path).load(state(0))


def test_other_shapes_are_refused(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(state(1), state(1).params, Progress(1))
    other = state(1)._replace(params={"different": jnp.ones(3)})
    with pytest.raises(InputError, match="of another model"):
        store.load(other)


def test_damaged_checkpoint_is_one_line(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(state(1), state(1).params, Progress(1))
    for path in (tmp_path / "checkpoints").rglob("*"):
        if path.is_file() and path.parent.name == "d":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="is damaged or missing") as raised:
        store.load(state(0))
    assert "\n" not in str(raised.value)
