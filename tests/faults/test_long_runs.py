"""Memory, open files and threads of a run do not grow with its steps."""

import gc
import os
import statistics

import pytest

import jhgnn
from tests.models.heterographs import academic

pytestmark = pytest.mark.usefixtures("compile_cache")

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOKS = 60


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"model": "rgcn"}, 3000),
        ({"model": "rgat", "sampling": {"batch_size": 10, "fan_out": "3", "side": "host"}}, 600),
    ],
    ids=["the whole graph", "mini-batches"],
)
def test_a_long_run_stays_flat(settings, epochs, tmp_path):
    looks: list[tuple[int, int, int]] = []

    def look(result) -> None:
        if result.epoch % (epochs // LOOKS) == 0:
            gc.collect()
            handles, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            looks.append((resident_bytes(), handles, threads))

    small = {"hidden": 8, "layers": 1, "patience": 0, "checkpoint_every_s": 1.0, "evaluate_every": 20}
    jhgnn.fit(academic(), **settings, **small, epochs=epochs, callbacks=[look], folder=tmp_path / "run", progress=False)
    resident, handles, threads = zip(*looks[LOOKS // 3 :], strict=True)
    third = len(resident) // 3
    grown = statistics.median(resident[-third:]) - statistics.median(resident[:third])
    assert grown < 6 * 2**20, resident
    assert max(handles) - min(handles) <= 8, handles
    assert max(threads) - min(threads) <= 8, threads
    assert statistics.median(threads[-third:]) <= statistics.median(threads[:third]) + 1, threads
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) <= 2
