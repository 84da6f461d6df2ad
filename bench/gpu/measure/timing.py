"""Seconds of a call on a device, and the turns that processes take at it."""

import contextlib
import fcntl
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from bench.gpu.measure.items import Sizes


def timed(call: Callable[[], Any], sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of a call: the median over samples, their bounds, and how many calls a sample has.

    A sample starts its calls one after the other and waits once, for the last, so that what is timed is the device and
    not the way to it, unless the way is longer. Two calls before them warm up.
    """
    for _ in range(2):
        jax.block_until_ready(call())
    start = time.perf_counter()
    jax.block_until_ready(call())
    calls = max(1, min(1000, round(sizes.sample_s / max(time.perf_counter() - start, 1e-7))))
    taken = []
    for _ in range(sizes.samples):
        start = time.perf_counter()
        for _ in range(calls):
            out = call()
        jax.block_until_ready(out)
        taken.append((time.perf_counter() - start) / calls)
    return summary(taken) | {"calls_a_sample": calls}


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median and bounds in milliseconds."""
    ms = [1e3 * each for each in seconds]
    return {"ms": statistics.median(ms), "ms_least": min(ms), "ms_most": max(ms), "samples": len(ms)}


@contextlib.contextmanager
def preparing(folder: Path) -> Iterator[None]:
    """Compiles beside other processes of the run, while none of them measures."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def measuring(folder: Path) -> Iterator[None]:
    """Has the device to itself among the processes of the run."""
    with _locked(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    with (folder / "device.lock").open("w") as file:
        fcntl.flock(file, kind)
        yield
