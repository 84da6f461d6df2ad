"""Checkpoints in shards: rows come back by id whoever keeps them now, and what is wrong with a shard is one line."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jhgnn.distributed.assignment import Assignment
from jhgnn.distributed.placement import Placement
from jhgnn.errors import InputError, StorageError
from jhgnn.training import checkpoint_shards
from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.joined_tables import JoinedTables
from jhgnn.training.mesh import DeviceMesh
from jhgnn.training.parts import Parts
from jhgnn.training.state import TrainState

COUNTS = {"author": 7, "subject/of": 3}


def parts_of(owners: dict[str, list[int]], devices: int = 2) -> Parts:
    assigned = {name: np.asarray(own, np.int32) for name, own in owners.items()}
    return Parts(Placement.of(Assignment(devices, assigned, "given")), DeviceMesh(devices))


def joined_of(owners: dict[str, list[int]]) -> JoinedTables:
    """All types in one array, as relations first keeps them."""
    assigned = {name: np.asarray(own, np.int32) for name, own in owners.items()}
    return JoinedTables(Placement.joint(assigned, 2, "given"), DeviceMesh(2))


TWO = {"author": [0, 1, 1, 0, 0, 1, 0], "subject/of": [1, 1, 1]}
OTHER = {"author": [1, 1, 1, 1, 0, 1, 1], "subject/of": [0, 1, 0]}


def state(value: float) -> TrainState:
    """Two tables among the parameters, and moments of everything, which all differ."""
    tables = {name: np.arange(count * 2, dtype=np.float32).reshape(count, 2) + value for name, count in COUNTS.items()}
    params = {"embeddings": {"tables": tables}, "layers": {0: {"w": np.full((3, 2), value, np.float32)}}}
    moments = jax.tree.map(lambda leaf: leaf * 3, params)
    return TrainState(np.int32(value), np.uint32(7), params, (moments, np.float32(0.5)))


def whole_best(value: float) -> dict:
    return jax.tree.map(lambda leaf: leaf - 1, state(value).params)


def placed(parts: Parts, tree):
    return parts.mesh.place(parts.cut(tree), parts.specs(tree))


def saved(folder: Path, parts: Parts, *epochs: int) -> CheckpointStore:
    store = CheckpointStore(folder)
    for epoch in epochs:
        progress = Progress(epoch, best_epoch=epoch)
        store.save(placed(parts, state(epoch)), placed(parts, whole_best(epoch)), progress, parts=parts)
    return store


def same(found, expected) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_rows_come_back_whole_cut_alike_and_cut_otherwise(tmp_path):
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 0, 1, 2)
    assert sorted(path.name for path in store.folder.iterdir()) == ["epoch-00000001", "epoch-00000002"]
    store = CheckpointStore(store.folder)
    loaded = store.load(state(0))
    assert loaded.progress == Progress(2, best_epoch=2)
    same(loaded.state, state(2))
    same(loaded.best_params, whole_best(2))
    same(store.load_best_params(state(0).params), whole_best(2))
    alone = parts_of({name: [0] * n for name, n in COUNTS.items()}, 1)
    for parts in (parts_of(TWO), parts_of(OTHER), joined_of(OTHER), alone):
        cut = store.load(state(0), parts=parts)
        same(cut.state, parts.cut(state(2)))
        same(cut.best_params, parts.cut(whole_best(2)))


@pytest.mark.parametrize("parts", [parts_of(TWO), joined_of(TWO)], ids=["by type", "joined"])
def test_a_checkpoint_of_a_whole_state_is_read_by_parts(tmp_path, parts):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(*jax.tree.map(jnp.asarray, (state(4), whole_best(4))), Progress(4))
    cut = store.load(state(0), parts=parts)
    same(cut.state, jax.tree.map(np.asarray, parts.cut(state(4))))
    same(cut.best_params, parts.cut(whole_best(4)))


@given(st.data())
def test_any_parts_are_read_by_any_others(tmp_path_factory, data):
    def drawn() -> Parts:
        owners = {n: data.draw(st.lists(st.integers(0, 1), min_size=c, max_size=c)) for n, c in COUNTS.items()}
        return joined_of(owners) if data.draw(st.booleans()) else parts_of(owners)

    store = saved(tmp_path_factory.mktemp("shards"), drawn(), 1)
    parts = drawn()
    same(store.load(state(0), parts=parts).state, parts.cut(state(1)))


def test_no_more_rows_are_in_memory_than_are_kept_and_a_block(tmp_path, monkeypatch):
    """Blocks of one row each, of which those of other places are not read."""
    monkeypatch.setattr(checkpoint_shards, "_BLOCK_BYTES", 8)
    read, blocks = [], checkpoint_shards._blocks

    def counted(*arguments):
        for begin, block in blocks(*arguments):
            read.append(block.size)
            yield begin, block

    monkeypatch.setattr(checkpoint_shards, "_blocks", counted)
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 1)
    one = dataclasses.replace(parts_of(OTHER), mesh=OnePlace())
    same(store.load(state(0), parts=one).state, one.cut(state(1)))
    kept = sum(own.count(0) for own in OTHER.values())
    assert read == [2] * (kept * 3)  # of parameters, moments and best parameters


class OnePlace:
    """The mesh of a process that keeps the first of two places."""

    local_numbers = range(1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing shard", "shard 1 of 2 is missing"),
        ("other epoch", "shard 0 is of epoch 1, batch 0, and the checkpoint of epoch 2, batch 0"),
        ("other number", "shard 0 is of 1 shards, and the checkpoint of 2"),
        ("half of the rows", "file shard-00001/rows-0000.npy is damaged or missing"),
        ("a bit of the rows", "file shard-00001/rows-0000.npy is damaged or missing"),
        ("no ids", "file shard-00000/ids-0001.npy is damaged or missing"),
        ("no manifest", "file manifest.json is damaged or missing"),
        ("half of the manifest", "file manifest.json is damaged or missing"),
        ("dense", "file dense.npz is damaged or missing"),
    ],
)
def test_a_damaged_newest_one_is_said_in_a_line_and_the_older_is_taken(how, message, tmp_path):
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 1, 2)
    older, newest = sorted(store.folder.iterdir())
    damage(newest, older, how, tmp_path)
    again = CheckpointStore(store.folder)
    same(again.load(state(0)).state, state(1))
    assert again.fallback == f"checkpoint {newest}: {message}; the older {older.name} is taken in its place"
    shutil.rmtree(older)
    with pytest.raises(InputError, match="and no older one is sound") as raised:
        CheckpointStore(store.folder).load(state(0))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def damage(newest: Path, older: Path, how: str, tmp_path: Path) -> None:
    rows, manifest = newest / "shard-00001" / "rows-0000.npy", newest / "manifest.json"
    if how == "missing shard":
        shutil.rmtree(newest / "shard-00001")
    elif how in ("other epoch", "other number"):
        shutil.rmtree(newest / "shard-00000")
        if how == "other number":
            alone = parts_of({name: [0] * count for name, count in COUNTS.items()}, 1)
            older = saved(tmp_path / "one", alone, 2).folder / newest.name
        shutil.copytree(older / "shard-00000", newest / "shard-00000")
    elif how in ("half of the rows", "half of the manifest"):
        file = rows if "rows" in how else manifest
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif how == "a bit of the rows":
        content = bytearray(rows.read_bytes())
        content[-1] ^= 1
        rows.write_bytes(content)
    elif how == "dense":
        (newest / "dense.npz").write_bytes(b"")
    else:
        {"no ids": newest / "shard-00000" / "ids-0001.npy", "no manifest": manifest}[how].unlink()


def test_one_that_was_not_completed_is_not_there_and_is_written_again(tmp_path):
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 1, 2)
    (store.folder / "epoch-00000002" / "digests.json").unlink()
    (store.folder / "epoch-00000002" / "left.npy").touch()
    store = CheckpointStore(store.folder)
    assert store.progress().epoch == 1
    same(saved(store.folder, parts_of(TWO), 2).load(state(0)).state, state(2))


def test_a_shard_that_cannot_be_written_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_shards.np, "save", full)
    with pytest.raises(StorageError, match="cannot write it: No space left on device"):
        saved(store.folder, parts_of(TWO), 2)
    assert [path.name for path in store.folder.iterdir()] == ["epoch-00000001"]


def test_rows_that_no_shard_has_are_one_line(tmp_path):
    """A folder whose digests fit, put together by hand."""
    store = saved(tmp_path / "checkpoints", parts_of(TWO), 1)
    path = store.folder / "epoch-00000001"
    ids = path / "shard-00001" / "ids-0000.npy"
    np.save(ids, np.zeros(3, np.int32))
    listed = json.loads((path / "digests.json").read_text())
    listed["shard-00001/ids-0000.npy"] = checkpoint_shards.digest(ids, sync=False)
    (path / "digests.json").write_text(json.dumps(listed))
    with pytest.raises(InputError, match="not one for each of 7 nodes"):
        CheckpointStore(store.folder).load(state(0), parts=parts_of(TWO))
    other = state(1)._replace(params={"different": jnp.ones(3)})
    with pytest.raises(InputError, match="of another model"):
        CheckpointStore(store.folder).load(other, parts=parts_of(TWO))
