"""The memory of one step stays with the process for the next, instead of being mapped and cleared anew.

XLA for the CPU allocates a step's temporaries and frees them after it. glibc maps what is larger than 32 MiB each time,
and the kernel clears it, on huge pages too: a fifth of the processor time of an R-GAT step on DBLP. Memory that comes
from glibc's heap is there again in the next step. Only the heap of the main thread can hold more than 64 MiB, so a
program's memory has to be allocated by the thread that calls it.
"""

import contextlib
import ctypes
import os
from collections.abc import Mapping

import jax

from jhgnn.runtime.huge_pages import TUNABLES

SWITCH = "JHGNN_KEEP_STEP_MEMORY"
MAPPED_BYTES = 1 << 30
"""What is at least so large is still mapped: a heap in which it finds its place taken would grow by as much again."""

UNUSED_BYTES = 1 << 28
"""Free memory that the heap keeps between two stages."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_step_memory() -> None:
    """Keeps a step's memory of up to `MAPPED_BYTES` for the next step; to be called before JAX finds its devices.

    Programs on the CPU then run in the thread that calls them. Nothing changes without glibc, and with
    `JHGNN_KEEP_STEP_MEMORY=0`.
    """
    if os.environ.get(SWITCH) == "0":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    if mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, -1):
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def give_back_unused() -> None:
    """Returns free memory of all heaps to the system where it is more than `UNUSED_BYTES`: for ends of stages.

    With `keep_step_memory` the heap keeps what reading a graph, tracing and compiling have freed, which can be more
    than all that a part of a graph needs afterwards, and a step of a mini-batch keeps for the next what an evaluation
    allocates beside it. Less is kept, since each page that comes back is a fault. Nothing happens without glibc 2.33.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library, or an older one
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Mallinfo2
        if library.mallinfo2().fordblks > UNUSED_BYTES:
            library.malloc_trim(0)


class _Mallinfo2(ctypes.Structure):
    """Of malloc.h: what the allocator holds, in bytes; `fordblks` is free."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def kept_by_environment(before: Mapping[str, str]) -> dict[str, str]:
    """Variables of a process that is to keep freed memory of any size; none if switched off.

    PyG's HAN on DBLP has arrays of 1.7 GiB. What `before`, the process's environment, says wins.
    """
    if os.environ.get(SWITCH) == "0":
        return {}
    settings = f"glibc.malloc.mmap_threshold={2**40}:glibc.malloc.trim_threshold={2**40}"
    return {TUNABLES: ":".join(filter(None, (settings, before.get(TUNABLES))))}
