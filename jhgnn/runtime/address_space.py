"""Whether JAX fits into the address space that this process may have; where it does not, C++ libraries abort."""

import os
import resource

from jhgnn.errors import InputError
from jhgnn.runtime.memory_limit import readable_bytes

PROGRAMS_BYTES = 1450 * 2**20
"""Python, JAX, XLA's compiler, Orbax and Matplotlib mapped, with what they allocate for a graph of 69 nodes."""
THREADS, THREADS_PER_CORE = 38, 5
"""Most of a training run at once, on one core and for each further one; each maps its stack whole."""
USUAL_STACK_BYTES = 2 * 2**20
"""Of a thread where `ulimit -s` is unlimited, on x86-64."""


def check_address_space() -> None:
    """Refuses an address space (`ulimit -v`) in which JAX, XLA and Orbax cannot start their threads.

    The estimate is a lower bound: what a graph and its model take comes on top.

    Raises:
        InputError: with the estimate and the limit.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = needed_bytes()
    if resource.RLIM_INFINITY != allowed < needed:
        raise InputError(
            f"ulimit -v allows {readable_bytes(allowed)} of address space, and JAX with its threads takes"
            f" {readable_bytes(needed)} here before any data; raise it to `ulimit -v {-(-needed // 1024)}` or more"
        )


def needed_bytes() -> int:
    """Address space that a command takes which runs JAX on the CPU, in bytes."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY:
        stack = USUAL_STACK_BYTES
    return PROGRAMS_BYTES + (THREADS + THREADS_PER_CORE * _num_cores()) * stack


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
