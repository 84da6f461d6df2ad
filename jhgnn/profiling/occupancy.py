"""Divides the wall time of a step among its ops, so that the parts add up to the whole however many threads ran.

Each instant of the step's window goes, in equal shares, to

1. the threads that work for an op at that instant (a thread inside several nested ops works for the innermost);
2. else the ops that have started and not ended, which wait for threads that the trace does not show;
3. else host work that is annotated (SAMPLE, GATHER, LOAD, SYNC);
4. else nobody: idle, told apart as `launch` (before the first op), `gaps` (between ops) and `finish` (after the last).
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping

from jhgnn.profiling.xplane import Span, Trace, leaves


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """One step's wall time and its parts, in seconds; the parts add up to `wall_s`.

    Attributes:
        ops: HLO op -> seconds.
        host: annotated host work while no op ran.
        hidden: annotated host work while ops ran, which is not part of the sum.
        idle: `launch`, `gaps` and `finish`.
    """

    wall_s: float
    ops: Mapping[str, float]
    host: Mapping[str, float]
    hidden: Mapping[str, float]
    idle: Mapping[str, float]


def step_times(trace: Trace) -> list[StepTimes]:
    """The parts of every step of a trace."""
    pieces = [(span, 0) for thread in trace.busy for span in leaves(thread)]
    pieces += [(span, 1) for span in trace.open_ops]
    pieces += [(span, 2) for span in trace.host]
    pieces.sort(key=lambda piece: piece[0].start_ns)
    result, first = [], 0
    for step in trace.steps:
        inside = []
        for index in range(first, len(pieces)):
            span, level = pieces[index]
            if span.start_ns >= step.end_ns:
                break
            if span.end_ns > step.start_ns:
                inside.append((span, level))
        result.append(_divide(step, inside))
    return result


def _divide(step: Span, pieces: list[tuple[Span, int]]) -> StepTimes:
    """A sweep over the starts and ends inside one window."""
    edges = []
    for span, level in pieces:
        edges.append((max(span.start_ns, step.start_ns), 1, span.name, level))
        edges.append((min(span.end_ns, step.end_ns), 0, span.name, level))  # ends sort before starts
    edges.sort()
    active: list[Counter[str]] = [Counter(), Counter(), Counter()]
    parts: list[dict[str, float]] = [defaultdict(float) for _ in range(3)]
    hidden: dict[str, float] = defaultdict(float)
    nobody: list[tuple[float, float]] = []
    first_op, last_op = step.end_ns, step.start_ns
    position = step.start_ns
    for time, starts, name, level in [*edges, (step.end_ns, 1, "", -1)]:
        if time > position:
            running = next((each for each in range(3) if active[each]), None)
            if running is None:
                nobody.append((position, time))
            else:
                for op, count in active[running].items():
                    parts[running][op] += (time - position) * count / active[running].total()
                if running < 2:
                    first_op, last_op = min(first_op, position), max(last_op, time)
                    for part in active[2]:
                        hidden[part] += time - position
            position = time
        if level >= 0:
            active[level][name] += 1 if starts else -1
            if active[level][name] == 0:
                del active[level][name]
    idle = {"launch": 0.0, "gaps": 0.0, "finish": 0.0}
    for start, end in nobody:
        idle["launch" if end <= first_op else "finish" if start >= last_op else "gaps"] += end - start
    ops = dict(parts[0])
    for op, value in parts[1].items():
        ops[op] = ops.get(op, 0.0) + value
    return StepTimes(
        (step.end_ns - step.start_ns) / 1e9, _seconds(ops), _seconds(parts[2]), _seconds(hidden), _seconds(idle)
    )


def _seconds(nanoseconds: Mapping[str, float]) -> dict[str, float]:
    return {name: value / 1e9 for name, value in nanoseconds.items()}
