"""Whether the libraries of a command fit into the address space that this process may have.

Where they do not, those in C and C++ abort in words of their own.
"""

import os
import resource

from jhgnn.errors import InputError
from jhgnn.runtime.memory_limit import readable_bytes

PROGRAMS_BYTES = 1450 * 2**20
"""Python, JAX, XLA's compiler, Orbax and Matplotlib mapped, with what they allocate for a graph of 69 nodes."""
LIBRARIES_BYTES = 480 * 2**20
"""Python, NumPy, SciPy and JAX mapped, without running JAX."""
THREADS, THREADS_PER_CORE = 38, 5
"""Most of a training run at once, on one core and for each further one; each maps its stack whole."""
USUAL_STACK_BYTES = 2 * 2**20
"""Of a thread where `ulimit -s` is unlimited, on x86-64."""


def check_address_space(*, runs_jax: bool) -> None:
    """Refuses an address space (`ulimit -v`) in which the libraries and their threads cannot start.

    The estimate is a lower bound: what a graph and its model take comes on top.

    Raises:
        InputError: with the estimate and the limit.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = needed_bytes(runs_jax=runs_jax)
    if resource.RLIM_INFINITY != allowed < needed:
        takes = "JAX with its threads takes" if runs_jax else "the libraries take"
        raise InputError(
            f"ulimit -v allows {readable_bytes(allowed)} of address space, and {takes} {readable_bytes(needed)} here"
            f" before any data; raise it to `ulimit -v {-(-needed // 1024)}` or more"
        )


def needed_bytes(*, runs_jax: bool) -> int:
    """Address space that a command takes on the CPU, in bytes; without running JAX, threads of OpenBLAS alone."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY:
        stack = USUAL_STACK_BYTES
    if not runs_jax:
        return LIBRARIES_BYTES + _num_cores() * stack
    return PROGRAMS_BYTES + (THREADS + THREADS_PER_CORE * _num_cores()) * stack


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
