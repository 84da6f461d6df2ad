"""Several processes that train together: how they find each other, and how the run ends when one of them dies."""

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import jax
from jax._src import distributed
from jax._src.lib import _jax

from jhgnn.config import DistributedConfig
from jhgnn.errors import InputError
from jhgnn.runtime import agreement
from jhgnn.runtime.agreement import DisagreementError

_CLUSTER_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Where SLURM, Open MPI and other launchers say how many processes they started; JAX joins those of the first two."""


_WAIT_MS = 24 * 3600 * 1000
"""For each other; one that dies ends the others long before."""

_FAREWELL_MS = 20 * 1000
"""For others that have met the same bad input and are about to say so."""

_LEAVING_S = 5
"""For the thread of this process that has said why it ends."""

_STARTING_S = 20
"""Beyond a heartbeat's timeout, for a process that has joined to say what it was started with."""


def in_cluster() -> bool:
    """Whether a launcher started several processes."""
    return any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > 1 for name in _CLUSTER_SIZES)


def are_several(config: DistributedConfig) -> bool:
    """Whether the recipe or a launcher says that several processes train together."""
    return config.num_processes > 1 or (in_cluster() and not config.coordinator)


def join(
    config: DistributedConfig,
    *,
    started: Mapping[str, str] | None = None,
    farewell: Callable[[], str] = lambda: "start all of them again",
) -> None:
    """Joins the other processes, before anything else uses JAX's devices.

    A process that stays silent for `heartbeat_timeout_s` counts as dead, and all others end with one line.

    Args:
        config: where they are.
        started: what this one was started with, which must be the same in all of them.
        farewell: what is left then, and how to go on.

    Raises:
        DisagreementError: they were started with something else, or one of them refuses its input.
        InputError: they cannot be found.
    """
    try:
        _initialize(config, 10 * config.heartbeat_timeout_s, farewell)
        agreement.agree(agreement.STARTED, started or {}, limit_s=config.heartbeat_timeout_s + _STARTING_S)
        jax.process_count()  # finds the devices of all of them
        # Process 0 is told of the others before they are: if it ended then, they would look for it until the timeout.
        meet("joined")
    except DisagreementError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        if config.coordinator:
            where = config.coordinator
            raise InputError(f"distributed: cannot join the other processes at {where}: {reason}") from None
        raise InputError(
            "distributed: a launcher started several processes, but they cannot be joined from its environment"
            f" ({reason}); give distributed.coordinator, num_processes and process_id"
        ) from None


def refuse(config: DistributedConfig, why: str) -> NoReturn:
    """Joins the others, if they come within a heartbeat's timeout, to tell them that this one cannot begin; ends it.

    Else they would look for it for minutes. `say_last` has said why.
    """
    with contextlib.suppress(RuntimeError, ValueError):
        _initialize(config, config.heartbeat_timeout_s, str)
        leave_on_bad_input(why)
    leave(2)


def _initialize(config: DistributedConfig, timeout_s: int, farewell: Callable[[], str]) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    known = {
        "coordinator_address": config.coordinator,
        "num_processes": config.num_processes,
        "process_id": config.process_id,
    }
    with _told_of_silence(config.heartbeat_timeout_s, farewell):
        jax.distributed.initialize(
            **(known if config.coordinator else {}),  # type: ignore[arg-type]
            initialization_timeout=timeout_s,
            heartbeat_timeout_seconds=config.heartbeat_timeout_s,
            shutdown_timeout_seconds=config.heartbeat_timeout_s,
        )


def meet(name: str, *, timeout_ms: int = _WAIT_MS) -> None:
    """Waits here for all processes that `join` found, as long as they live; returns at once where there is one.

    Before the first exchange: gloo gives processes 30 s to find each other then, and on a busy machine one may have
    compiled for that much longer than the other.
    """
    if agreement.are_joined():
        agreement.client().wait_at_barrier(name, timeout_ms)


@contextlib.contextmanager
def _told_of_silence(limit_s: int, farewell: Callable[[], str]) -> Iterator[None]:
    """The runtime tells a process that joins inside of others that do not answer, instead of aborting it.

    Its service exchanges heartbeats from threads of its own, which a long compilation does not hold up. It has a
    callback for what they miss, which `jax.distributed` does not hand on. The callback gets a status of C++'s that
    Python's bindings may have no class for, which ends in `std::terminate`: that is told here as well. Where the C++
    library has no such hook, the runtime aborts as it is used to.
    """
    global _on_terminate
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):
        yield
        return

    def silent(*_: Any) -> None:
        leave_with(f"another one has died, is frozen, or is cut off from it (no word for {limit_s} s); {farewell()}")

    _on_terminate = ctypes.CFUNCTYPE(None)(silent)  # kept as long as the process lives
    set_terminate(_on_terminate)
    make = _jax.get_distributed_runtime_client
    _jax.get_distributed_runtime_client = functools.partial(make, missed_heartbeat_callback=silent)
    try:
        yield
    finally:
        _jax.get_distributed_runtime_client = make


_on_terminate: Any = None
_last_word = threading.Lock()
"""Held by the thread that ends this process, until it has ended."""
_last_code = 1
"""With which that thread ends it."""


def say_last(error: object, code: int = 2) -> None:
    """Says why this process ends, and with which exit code; it says no more, whatever happens to the others."""
    global _last_code
    # Not for ever: the other thread may wait for the runtime, which may wait for this one.
    if not _last_word.acquire(timeout=_LEAVING_S):
        leave(_last_code)
    _last_code = code
    print(f"error: {error}", file=sys.stderr, flush=True)


def leave_with(why: str) -> NoReturn:
    """Ends this process at once with exit code 1 and one line, whichever of its threads knows first why."""
    state = distributed.global_state  # JAX's own functions would wait for devices, which may not be found yet
    say_last(f"process {state.process_id} of {state.num_processes} ends, as {why}", 1)
    leave(1)


def leave(code: int) -> NoReturn:
    """Ends this process at once: the farewell that JAX takes on exit would wait for processes that are dead."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_on_bad_input(why: str) -> NoReturn:
    """Ends this process with exit code 2, together with those that refuse the same input or wait for this one to begin.

    The first to end would take the others with it, before they have said why. `say_last` has said it here.
    """
    agreement.refuse(why)
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # the others go on, or are dead
        meet("bad input", timeout_ms=_FAREWELL_MS)
    leave(2)
