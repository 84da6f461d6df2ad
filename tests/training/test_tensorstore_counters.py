"""Checkpoints leave nothing in memory."""

import gc

from orbax.checkpoint._src.serialization import tensorstore_utils

from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.tensorstore_counters import without_counters
from tests.training.test_checkpoint import state


def test_checkpoints_keep_no_objects(tmp_path):
    store, kept = CheckpointStore(tmp_path / "checkpoints"), state(1)

    def objects_after(epochs: range) -> int:
        for epoch in epochs:
            store.save(kept, kept.params, Progress(epoch))
        gc.collect()
        return len(gc.get_objects())

    before = objects_after(range(1, 5))
    assert objects_after(range(5, 15)) - before < 100  # with the counters read, over 400


def test_what_orbax_reads_is_put_back():
    read = tensorstore_utils.get_tensorstore_raw_bytes
    with without_counters():
        assert tensorstore_utils.get_tensorstore_raw_bytes() == 0
    assert tensorstore_utils.get_tensorstore_raw_bytes is read
