"""Targets a second of plain sampling and of hot vertices, in interleaved rounds, and the first layer's share of a step.

A round runs the same batches of an epoch through the whole pipeline, each way in turn, from an empty queue to the last
update. So whatever else the machine does meets all of them alike, and ratios are of pairs. Where other programs take
much of the machine, `cpu_ms` says more: the processor time of all threads for a batch, its loader's included.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from bench.neutronorch.problems import sampled, with_share
from jhgnn.profiling.capture import capture
from jhgnn.profiling.stages import analyse
from jhgnn.sampling.epoch import Cursor
from jhgnn.training.execution import Programs
from jhgnn.training.problem import Problem


def paired(problem: Problem, shares: list[float], *, rounds: int, steps: int) -> list[dict[str, Any]]:
    """For each share: medians over rounds of targets a second and of their ratio to plain sampling's of the round."""
    runs = []
    for share in [0.0, *shares]:
        execution = sampled(problem, share)
        programs = execution.compile()
        runs.append((share, programs, [programs.place(execution.initial_state(0))]))
    times: dict[float, list[float]] = {share: [] for share, _, _ in runs}
    cpu: dict[float, list[float]] = {share: [] for share, _, _ in runs}
    host: dict[float, dict[str, float]] = {}
    for number in range(rounds + 1):  # the first warms up
        for share, programs, state in runs if number % 2 else reversed(runs):
            seconds, cpu_s, host_s = _round(programs, state, number, steps)
            if number:
                times[share].append(seconds)
                cpu[share].append(cpu_s)
                own = host.setdefault(share, dict.fromkeys(host_s, 0.0))
                host[share] = {name: own[name] + host_s[name] / rounds / steps for name in own}
    batch = problem.config.sampling.batch_size
    found = []
    for share, programs, _ in runs:
        ratios = [plain / own for plain, own in zip(times[0.0], times[share], strict=True)]
        found.append(
            {
                "share": share,
                "targets_a_second": statistics.median(steps * batch / own for own in times[share]),
                "over_plain": statistics.median(ratios),
                "over_plain_by_round": [round(ratio, 3) for ratio in ratios],
                "cpu_ms": 1e3 * statistics.median(cpu[share]) / steps,
                "cpu_of_plain": statistics.median(own / plain for plain, own in zip(cpu[0.0], cpu[share], strict=True)),
                "host_ms_a_batch": {name: 1e3 * value for name, value in host[share].items()},
                "overflows": programs.overflows,
                "peak_temp_bytes": programs.step.peak_temp_bytes,
            }
        )
    return found


def _round(programs: Programs, state: list[Any], number: int, steps: int) -> tuple[float, float, dict[str, float]]:
    """Seconds, seconds of processors, and of the loader's threads."""
    per_epoch = programs.execution.steps_per_epoch
    start = number * steps % max(1, per_epoch - steps)
    feed: Any = programs.feed(0)
    began, cpu_began = time.perf_counter(), time.process_time()
    for batch in feed.iterate(Cursor(0, start), Cursor(0, start + steps)):
        state[0], _ = programs.update(state[0], batch)
    jax.block_until_ready(state[0])
    return time.perf_counter() - began, time.process_time() - cpu_began, feed.host_s


def first_layer(problem: Problem, shares: list[float]) -> list[dict[str, Any]]:
    """For each share: what part of a traced step's op time belongs to the first layer."""
    found = []
    for share in [0.0, *shares]:
        with tempfile.TemporaryDirectory() as folder:
            capture(with_share(problem.config, share), Path(folder), progress=False)
            profile = analyse(Path(folder))
        total = sum(row["seconds"] for row in profile["stages"])
        first = sum(row["seconds"] for row in profile["parts"] if row["layer"] == 0)
        found.append({"share": share, "first_layer": first / total, "op_ms": 1e3 * total})
    return found
