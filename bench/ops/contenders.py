"""What takes part in a row of `bench.ops`, and the rounds in which all take turns."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass
class Contender:
    """One implementation or peer on one case: `run` gives the seconds of one call."""

    run: Callable[[], float]
    facts: dict[str, object]


def compiled(function: Callable[..., Any], *arguments: Any) -> Contender:
    """Our implementations: timed with their arguments on the device, compile time and XLA's memory as facts."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(*arguments).compile()
    compile_s = time.perf_counter() - start
    memory = executable.memory_analysis()
    facts: dict[str, object] = {"compile_s": round(compile_s, 3)}
    if memory is not None:
        facts["peak_mib"] = round((memory.temp_size_in_bytes + memory.output_size_in_bytes) / 2**20, 1)

    def run() -> float:
        start = time.perf_counter()
        jax.block_until_ready(executable(*arguments))
        return time.perf_counter() - start

    return Contender(run, facts)


def measure(contenders: dict[str, Contender], rounds: int, budget_s: float) -> dict[str, dict[str, object]]:
    """Medians in ms over interleaved rounds after one that warms up; ratios to native are those of the same round."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    started = time.perf_counter()
    for index in range(rounds + 1):
        for name, contender in contenders.items():
            seconds = contender.run()
            if index:
                taken[name].append(seconds)
        if index >= 3 and time.perf_counter() - started > budget_s:
            break
    rows: dict[str, dict[str, object]] = {}
    for name, times in taken.items():
        rows[name] = {
            "ms": round(1e3 * statistics.median(times), 3),
            "ms_spread": [round(1e3 * bound, 3) for bound in (min(times), max(times))],
            "rounds": len(times),
        } | contenders[name].facts
        if "native" in taken:
            ratios = [other / own for other, own in zip(times, taken["native"], strict=True)]
            rows[name]["over_native"] = round(statistics.median(ratios), 2)
    return rows
