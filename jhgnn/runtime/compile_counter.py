"""Counts XLA's compilations, so that a run can say, and a test can assert, that no step compiles after warm-up."""

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts from its creation on, over all threads of the process."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT:
            self.count += 1


_counter: CompileCounter | None = None


def compilations() -> int:
    """Compilations since the first call, which gives 0; JAX has no way to take one listener back, so there is one."""
    global _counter
    if _counter is None:
        _counter = CompileCounter()
    return _counter.count
