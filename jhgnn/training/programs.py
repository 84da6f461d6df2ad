"""Programs compiled ahead of time, with the seconds that it took and the memory that they need."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax

from jhgnn.nn import recompute


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
    start = time.perf_counter()
    compiled = recompute.compile_with_barriers(lower())
    return Compiled(compiled, time.perf_counter() - start)


def lower_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> jax.stages.Lowered:
    """Traces `function` for these arguments, arrays or their shapes, on one device; nothing runs."""
    return jax.jit(function, donate_argnums=donate).lower(*arguments)


def compile_ahead(function: Any, arguments: tuple[Any, ...], donate: tuple[int, ...] = ()) -> Compiled:
    """Traces and compiles `function`, as `lower_ahead` says."""
    return compile_lowered(lambda: lower_ahead(function, arguments, donate))
