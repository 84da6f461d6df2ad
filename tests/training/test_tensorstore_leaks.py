"""Checkpoints leave nothing in memory."""

import gc
import sys

import tensorstore
from orbax.checkpoint._src.serialization import tensorstore_utils

from jhgnn.training.checkpoint import CheckpointStore, Progress
from jhgnn.training.tensorstore_leaks import without_leaks
from tests.training.test_checkpoint import state


def test_checkpoints_keep_no_objects(tmp_path):
    store, kept = CheckpointStore(tmp_path / "checkpoints"), state(1)

    def after(epochs: range) -> tuple[int, int]:
        """Objects that the garbage collector knows, and blocks of all, strings too."""
        for epoch in epochs:
            store.save(kept, kept.params, Progress(epoch))
        gc.collect()
        return len(gc.get_objects()), sys.getallocatedblocks()

    before, now = after(range(1, 21)), after(range(21, 31))
    assert now[0] - before[0] < 100  # with the counters read, over 400
    assert now[1] - before[1] < 400  # with places printed, over 1,000


def test_what_orbax_uses_is_put_back():
    used = ("get_tensorstore_raw_bytes", "ts")
    before = [getattr(tensorstore_utils, name) for name in used]
    with without_leaks():
        assert tensorstore_utils.get_tensorstore_raw_bytes() == 0
        assert tensorstore_utils.ts is not tensorstore
    assert [getattr(tensorstore_utils, name) for name in used] == before


def test_the_place_of_files_is_what_tensorstore_makes_of_it(tmp_path):
    spec = {"driver": "file", "path": f"{tmp_path}/"}
    printed = tensorstore.KvStore.Spec(spec).to_json()
    with without_leaks():
        assert tensorstore_utils.ts.KvStore.Spec(spec).to_json() == printed == spec
        assert tensorstore_utils.ts.Spec is tensorstore.Spec
