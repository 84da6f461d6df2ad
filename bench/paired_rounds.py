"""Mini-batch training of several programs in interleaved rounds, so that what else the machine does meets all alike.

A round runs the same batches of an epoch through the whole pipeline, each way in turn, from an empty queue to the last
update. Ratios are of pairs: each round of a way with the same round of the first one. Where other programs take much of
the machine, `cpu_ms` says more: the processor time of all threads for a batch, its loader's included.
"""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import jax

from jhgnn.sampling.epoch import Cursor
from jhgnn.training.sampled_programs import SampledPrograms


def paired_rounds(ways: Mapping[str, SampledPrograms], *, rounds: int, steps: int) -> dict[str, dict[str, Any]]:
    """For each way, medians over rounds of targets a second, of processor time, and of their ratios to the first way's.

    Args:
        ways: compiled; the first is what the others are compared with.
        rounds: that count; one more warms up.
        steps: batches of a round.
    """
    states = {name: [programs.place(programs.execution.initial_state(0))] for name, programs in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu_s: dict[str, list[float]] = {name: [] for name in ways}
    host_s: dict[str, dict[str, float]] = {}
    for number in range(rounds + 1):
        for name in list(ways) if number % 2 else reversed(list(ways)):
            wall, cpu, host = _round(ways[name], states[name], number, steps)
            if number:
                seconds[name].append(wall)
                cpu_s[name].append(cpu)
                own = host_s.setdefault(name, dict.fromkeys(host, 0.0))
                host_s[name] = {part: own[part] + host[part] / rounds / steps for part in own}
    first, found = next(iter(ways)), {}
    for name, programs in ways.items():
        batch = programs.execution.config.sampling.batch_size
        ratios = [other / own for other, own in zip(seconds[first], seconds[name], strict=True)]
        found[name] = {
            "targets_a_second": statistics.median(steps * batch / own for own in seconds[name]),
            "times_first": statistics.median(ratios),
            "times_first_by_round": [round(ratio, 3) for ratio in ratios],
            "cpu_ms": 1e3 * statistics.median(cpu_s[name]) / steps,
            "cpu_of_first": statistics.median(
                own / other for other, own in zip(cpu_s[first], cpu_s[name], strict=True)
            ),
            "host_ms_a_batch": {part: 1e3 * value for part, value in host_s[name].items()},
            "overflows": programs.overflows,
            "peak_temp_bytes": programs.step.peak_temp_bytes,
        }
    return found


def _round(
    programs: SampledPrograms, state: list[Any], number: int, steps: int
) -> tuple[float, float, dict[str, float]]:
    """Seconds, seconds of processors, and of the loader's threads."""
    per_epoch = programs.execution.steps_per_epoch
    start = number * steps % max(1, per_epoch - steps)
    feed: Any = programs.feed(0)
    began, cpu_began = time.perf_counter(), time.process_time()
    for batch in feed.iterate(Cursor(0, start), Cursor(0, start + steps)):
        state[0], _ = programs.update(state[0], batch)
    jax.block_until_ready(state[0])
    return time.perf_counter() - began, time.process_time() - cpu_began, feed.host_s
