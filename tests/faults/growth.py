"""What a long run holds: resident memory, open files, threads and disk, looked at evenly over its steps."""

import dataclasses
import gc
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PER_EVALUATION = ("metrics.jsonl", "tensorboard")
"""What gains a line for each evaluated epoch, as it is meant to."""

RESIDENT_BYTES = 6 * 2**20
HANDLES = THREADS = 8
"""Most that may be gained between any two looks."""
KEPT = 2
"""Most handles and threads that the last third may have more than the first at its least. A checkpoint that is being
written has some of its own, and pools start threads when they first need them."""

POOL = "ts_pool_worker"
"""Threads of TensorStore's pool, which writes checkpoints. It starts one when all others are busy, up to its limit, so
that on a loaded machine a long run has some more of them than a short one."""


@dataclasses.dataclass(frozen=True)
class Look:
    """What a process holds now.

    Attributes:
        step: after which.
        resident_bytes: of the process, once Python has collected its garbage.
        handles, threads: open files, sockets and pipes; threads beside those of `POOL`.
        disk_bytes: of the run folder, without `PER_EVALUATION`.
        lines_bytes: of `PER_EVALUATION`.
        checkpoints: folders of them, whole or not.
    """

    step: int
    resident_bytes: int
    handles: int
    threads: int
    disk_bytes: int
    lines_bytes: int
    checkpoints: int


def thread_names() -> Iterator[str]:
    """Name of each thread of this process: XLA, TensorStore and LLVM set their own, Python the program's."""
    for task in Path("/proc/self/task").iterdir():
        try:
            yield (task / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        except (FileNotFoundError, ProcessLookupError):  # it ended since it was listed
            continue


def look(step: int, folder: Path) -> Look:
    """Looks at this process and the run folder that it trains in."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * PAGE_BYTES
    handles, threads = len(os.listdir("/proc/self/fd")), sum(name != POOL for name in thread_names())
    disk = lines = 0
    for path in folder.rglob("*"):
        try:
            size = path.lstat().st_size if not path.is_dir() else 0
        except FileNotFoundError:  # of a checkpoint that is renamed or deleted now
            continue
        if path.relative_to(folder).parts[0] in PER_EVALUATION:
            lines += size
        else:
            disk += size
    store = folder / "checkpoints"
    checkpoints = len(list(store.iterdir())) if store.is_dir() else 0
    return Look(step, resident, handles, threads, disk, lines, checkpoints)


def thirds(looks: Sequence[Look]) -> tuple[Sequence[Look], Sequence[Look]]:
    """The first and the last third of the looks after a warm-up, itself a third of all."""
    steady = looks[len(looks) // 3 :]
    third = len(steady) // 3
    return steady[:third], steady[-third:]


def grown(looks: Sequence[Look], field: str, of: Callable[[Iterable[float]], float] = statistics.median) -> float:
    """Median of a field, or what `of` gives, in the last third, less that in the first, after the warm-up."""
    first, last = (of(getattr(each, field) for each in part) for part in thirds(looks))
    return last - first


def leaks(looks: Sequence[Look]) -> list[str]:
    """What does not stay flat, one line each; empty where all does."""
    steady = looks[len(looks) // 3 :]
    found = []
    if grown(looks, "resident_bytes") >= RESIDENT_BYTES:
        found.append(f"resident memory grew by {grown(looks, 'resident_bytes') / 2**20:.1f} MiB")
    for field, most in (("handles", HANDLES), ("threads", THREADS)):
        values = [getattr(each, field) for each in steady]
        if max(values) - min(values) > most or grown(looks, field, min) > KEPT:
            found.append(f"{field} went from {min(values)} to {max(values)}")
    if grown(looks, "disk_bytes") > 0.02 * max(1, steady[0].disk_bytes):
        found.append(f"the run folder grew by {grown(looks, 'disk_bytes'):.0f} bytes beside its metrics")
    if max(each.checkpoints for each in steady) > 3:
        found.append(f"{max(each.checkpoints for each in steady)} checkpoints at once")
    return found
