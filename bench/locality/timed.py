"""Programs that repeat one kernel, and interleaved rounds of them until their noise is small."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax

NOISE = 0.05
"""Interquartile range over median, of the ratios to the first of a round; rounds end below it."""
LEAST_ROUNDS = 7
LEAST_EDGES = 400_000
"""That one call walks: a kernel on few edges is repeated."""


def repeats(edges: int) -> int:
    """How often a kernel on so many edges runs in one call."""
    return max(1, -(-LEAST_EDGES // max(1, edges)))


def repeated(function: Callable[..., jax.Array], times: int) -> Callable[..., jax.Array]:
    """The function `times` times, one after the other, which no compiler makes one of."""

    def run(*arguments: Any) -> jax.Array:
        first = function(*arguments)

        def again(_: Any, carried: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            # Each run has to wait for the one before, whose result it does not read.
            inputs, _ = lax.optimization_barrier(carried)
            return inputs, function(*inputs)

        return lax.fori_loop(1, times, again, (arguments, first))[1] if times > 1 else first

    return run


@dataclasses.dataclass(frozen=True)
class Timed:
    """Medians of rounds, in seconds of one run, and the noise of the ratios to the first contender."""

    seconds: Mapping[str, float]
    ratios: Mapping[str, float]
    noise: float
    rounds: int

    def facts(self) -> dict[str, Any]:
        return {
            "ms": {name: round(1e3 * value, 5) for name, value in self.seconds.items()},
            "ratio": {name: round(value, 4) for name, value in self.ratios.items()},
            "noise": round(self.noise, 4),
            "rounds": self.rounds,
            "quiet": self.noise <= NOISE,
        }


def in_rounds(contenders: Mapping[str, Callable[[], Any]], runs: int, budget_s: float) -> Timed:
    """Interleaved rounds, at least `LEAST_ROUNDS`, until the noise of every ratio is below `NOISE` or the time is over.

    Args:
        contenders: each a call, which does `runs` runs; ratios are to the first of them, in the same round.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        jax.block_until_ready(call())
    started = time.perf_counter()
    rounds = 0
    while True:
        for name, call in contenders.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            taken[name].append((time.perf_counter() - begin) / runs)
        rounds += 1
        if rounds >= LEAST_ROUNDS:
            found = _timed(taken)
            if found.noise <= NOISE or time.perf_counter() - started > budget_s:
                return found


def _timed(taken: Mapping[str, list[float]]) -> Timed:
    first = next(iter(taken.values()))
    ratios = {name: [own / base for own, base in zip(times, first, strict=True)] for name, times in taken.items()}
    noise = 0.0
    for name, each in ratios.items():
        # A single contender has no ratio but to itself: its own times tell.
        values = each if len(taken) > 1 else taken[name]
        low, middle, high = statistics.quantiles(values, n=4)
        noise = max(noise, (high - low) / middle)
    return Timed(
        {name: statistics.median(times) for name, times in taken.items()},
        {name: statistics.median(each) for name, each in ratios.items()},
        noise,
        len(first),
    )
