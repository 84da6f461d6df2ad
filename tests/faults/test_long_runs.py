"""Memory, open files, threads and disk of a run do not grow with its steps."""

import dataclasses
import threading
from pathlib import Path

import pytest

import jhgnn
from tests.faults.growth import POOL, Look, leaks, look, thread_names
from tests.models.heterographs import academic

pytestmark = pytest.mark.usefixtures("compile_cache")

LOOKS = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        pytest.param({"model": "rgcn"}, 3000, marks=pytest.mark.long),
        pytest.param(
            {"model": "rgat", "sampling": {"batch_size": 10, "fan_out": "3", "side": "host"}},
            300,
            marks=pytest.mark.long,
        ),
    ],
    ids=["the whole graph", "mini-batches"],
)
def test_a_long_run_stays_flat(settings, epochs, tmp_path):
    looks: list[Look] = []

    def callback(result) -> None:
        if result.epoch % (epochs // LOOKS) == 0:
            looks.append(look(result.epoch, tmp_path / "run"))

    small = {"hidden": 8, "layers": 1, "patience": 0, "checkpoint_every_s": 0.2, "evaluate_every": 20}
    fit = small | settings | {"epochs": epochs, "callbacks": [callback], "folder": tmp_path / "run", "progress": False}
    jhgnn.fit(academic(), **fit)
    assert not leaks(looks), looks
    assert looks[-1].checkpoints >= 1


def test_threads_are_counted_without_the_pool_that_grows_when_it_is_busy(tmp_path):
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        Path("/proc/thread-self/comm").write_text(POOL)
        started.set()
        stop.wait()

    before = look(0, tmp_path).threads
    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert started.wait(60)
        assert POOL in thread_names()
        assert look(1, tmp_path).threads <= before
    finally:
        stop.set()
        worker.join()


def test_what_a_checkpoint_has_while_it_is_written_is_not_kept():
    busy = [dataclasses.replace(each, threads=each.threads + 5) if each.step % 4 else each for each in FLAT]
    late = [dataclasses.replace(each, threads=each.threads + 5) if each.step > 40 else each for each in FLAT]
    assert leaks(busy) == []
    assert leaks(late) == ["threads went from 12 to 17"]


FLAT = [Look(step, 300 * 2**20, 40, 12, 50_000, 10 * step, 2) for step in range(60)]


@pytest.mark.parametrize(
    ("field", "per_step", "words"),
    [
        ("resident_bytes", 2**18, "resident memory grew by"),
        ("handles", 0.2, "handles went from"),
        ("threads", 0.2, "threads went from"),
        ("disk_bytes", 100, "the run folder grew by"),
        ("checkpoints", 0.1, "checkpoints at once"),
    ],
)
def test_what_grows_is_found(field, per_step, words):
    assert leaks(FLAT) == []
    grows = [dataclasses.replace(each, **{field: getattr(each, field) + int(per_step * each.step)}) for each in FLAT]
    (found,) = leaks(grows)
    assert words in found
