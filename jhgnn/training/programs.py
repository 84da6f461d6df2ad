"""Programs compiled ahead of time, with the seconds that it took and the memory that they need."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from jhgnn.nn import recompute
from jhgnn.runtime.platform import compiling_for, target_platform


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program, and the seconds of tracing and compiling it."""

    call: jax.stages.Compiled
    compile_s: float

    @property
    def peak_temp_bytes(self) -> int:
        """XLA's own figure: temporary memory of one call, beyond arguments and results."""
        analysis = self.call.memory_analysis()
        return int(analysis.temp_size_in_bytes) if analysis is not None else 0

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def compile_lowered(lower: Callable[[], jax.stages.Lowered]) -> Compiled:
    """Compiles what `lower` traces."""
    return compile_together([lower])[0]


def compile_together(lowers: Sequence[Callable[[], jax.stages.Lowered]]) -> list[Compiled]:
    """Compiles what each of `lowers` traces: they are traced one after the other, and compiled side by side.

    The longest should come first. Each one's seconds are those of its own trace and compilation, so that they add up to
    more than it took, where several cores compile.
    """

    def compiled(lowered: jax.stages.Lowered, traced_s: float) -> Compiled:
        start = time.perf_counter()
        with compiling_for(platform):  # which a thread does not take over
            call = recompute.compile_with_barriers(lowered)
        return Compiled(call, traced_s + time.perf_counter() - start)

    platform = target_platform()
    with ThreadPoolExecutor(max(1, min(len(lowers), _at_once())), "compile") as threads:
        made: list[Future[Compiled]] = []
        for lower in lowers:
            start = time.perf_counter()
            lowered = lower()
            traced_s = time.perf_counter() - start
            made.append(threads.submit(compiled, lowered, traced_s))
            del lowered  # its module goes when it is compiled
        return [each.result() for each in made]


def _at_once() -> int:
    """Programs that this process compiles side by side: one for every two cores, since XLA's own threads share the work
    of each. On two cores side by side takes as long as one by one (R-GAT on ACM: 5.4 and 5.5 s) and 190 MiB more.
    Processes that train together may share a machine.
    """
    return max(1, len(os.sched_getaffinity(0)) // 2 // jax.process_count())


def lower_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> jax.stages.Lowered:
    """Traces `function` for these arguments, arrays or their shapes, on one device; nothing runs."""
    return jax.jit(function, donate_argnums=donate).lower(*arguments)


def compile_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> Compiled:
    """Traces and compiles `function`, as `lower_ahead` says."""
    return compile_lowered(lambda: lower_ahead(function, arguments, donate))
