"""Reads a profiler trace (`.xplane.pb`) into what the analysis needs: steps, and what each thread did when.

XLA:CPU writes one event for every op (`hlo_op`) on the thread that starts it. An op that runs in parallel hands
closures to a pool; `ThreadpoolListener::Record` marks where one is handed over, `StartRegion` and `StopRegion` where a
thread of the pool runs it. So every busy moment of a thread belongs to the op whose event or closure it lies in.

Where a GPU ran the step, its streams take the place of the threads (`jhgnn.profiling.gpu`), and copies between host and
device count as host work, LOAD.
"""

import bisect
import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jhgnn.errors import InputError
from jhgnn.profiling.gpu import PLANE, STREAM, Copy, DeviceReader, Kernel, executions

STEP = "train"
HOST_PARTS = ("SAMPLE", "GATHER", "LOAD", "SYNC")
"""Annotations of host work inside a step: `jax.profiler.TraceAnnotation(NAME)`."""
PREPARATION = ("READ", "SGB", "LOAD", "COMPILE")
"""Annotations of what happens once, before the first step."""
KNOWN_PLANES = (
    *("/host:metadata", "/host:CPU", "Task Environment", "/host:python-tracer", "#Chip", "/device:CUSTOM:"),
    "/host:__ScopeRangeCallStack__",
)


@dataclasses.dataclass(frozen=True)
class Span:
    """Something between two times, in nanoseconds from the start of the trace."""

    name: str
    start_ns: float
    end_ns: float


@dataclasses.dataclass(frozen=True)
class Trace:
    """What one trace holds.

    Attributes:
        steps: the step annotations, in order.
        host: annotated host work, of steps and of the preparation.
        busy: per thread, spans named after the op that it worked for; nested ones follow those around them.
        open_ops: from the start of each op to its end, which may be on another thread.
        executions: op -> how often it ran.
        modules: HLO module -> number of op events.
        warnings: what could not be read.
        kernels, copies: launches and transfers of GPU streams; empty where no GPU took part.
        devices: GPU plane -> its properties.
    """

    steps: tuple[Span, ...]
    host: tuple[Span, ...]
    busy: tuple[tuple[Span, ...], ...]
    open_ops: tuple[Span, ...]
    executions: Counter[str]
    modules: Counter[str]
    warnings: tuple[str, ...]
    kernels: tuple[Kernel, ...] = ()
    copies: tuple[Copy, ...] = ()
    devices: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


def find_trace(folder: Path) -> Path:
    """The newest `.xplane.pb` below a folder, or the file itself.

    Raises:
        InputError: there is none.
    """
    if folder.is_file():
        return folder
    found = traces(folder)
    if not found:
        raise InputError(f"trace {folder}: no .xplane.pb file below it; name a folder written by jhgnn.profile")
    return found[-1]


def traces(folder: Path) -> list[Path]:
    """The `.xplane.pb` files below a folder, oldest first; of one that the profiler wrote, those of its own trace."""
    below = folder / "plugins" if (folder / "plugins").is_dir() else folder
    return sorted(below.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)


def make_newest(files: Sequence[Path], others: Sequence[Path]) -> None:
    """Gives files a later time than others of the same folder have, where the clock did not."""
    latest = max((path.stat().st_mtime for path in others), default=0.0)
    for path in files:
        if path.stat().st_mtime <= latest:
            os.utime(path, (latest + 1, latest + 1))


def read(path: Path, module: str = "") -> Trace:
    """Reads one trace.

    Args:
        path: of the `.xplane.pb`.
        module: keep the ops of this HLO module alone; empty keeps all.

    Raises:
        InputError: the file is empty, truncated or no XSpace, or has no plane of the host, which holds the steps.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"trace {path}: {error.strerror}") from None
    if not content:
        raise InputError(f"trace {path}: the file is empty; trace again")
    try:
        data = jax.profiler.ProfileData.from_serialized_xspace(content)
        planes = list(data.planes)
    except Exception as error:  # the parser raises whatever protobuf and pybind make of it
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"trace {path}: truncated, or not an XSpace: {reason}") from None
    warnings = []
    devices = DeviceReader(module)
    reader = _Reader(module, devices)
    gpus = [plane for plane in planes if plane.name.startswith(PLANE)]
    for plane in planes:
        if plane.name == "/host:CPU":
            for line in plane.lines:
                reader.line(line)
        elif plane.name.startswith("/device:TPU"):
            warnings.append(f"plane {plane.name!r}: TPU planes are not read; the host part alone is shown")
        elif plane.name == "/host:CUPTI":  # calls of the driver, where XLA has not merged them into the host's threads
            for line in plane.lines:
                for event in line.events:
                    devices.launch(event)
        elif plane.name.startswith(PLANE):
            continue  # read after the host's, which tell when each kernel was launched
        elif not plane.name.startswith(KNOWN_PLANES):
            warnings.append(f"plane {plane.name!r} is unknown and was left out")
    if not any(plane.name == "/host:CPU" for plane in planes):
        names = ", ".join(repr(plane.name) for plane in planes) or "none"
        raise InputError(f"trace {path}: has no '/host:CPU' plane (planes: {names}), which would hold the steps")
    for plane in gpus:
        devices.plane(plane)
        if not any(line.name.startswith(STREAM) for line in plane.lines):
            warnings.append(f"plane {plane.name!r} has no stream: CUPTI saw no kernel of it; the host part is shown")
    trace = reader.result(warnings)
    return _on_streams(trace, devices) if devices.kernels else trace


def _on_streams(trace: Trace, devices: DeviceReader) -> Trace:
    """The trace with a GPU's streams in place of the host's threads."""
    kernels = sorted(devices.kernels, key=lambda each: each.start_ns)
    streams: dict[tuple[str, str], list[Span]] = {}
    for each in kernels:
        streams.setdefault((each.device, each.stream), []).append(Span(each.op, each.start_ns, each.end_ns))
    copies = [Span("LOAD", each.start_ns, each.end_ns) for each in devices.copies]
    return dataclasses.replace(
        trace,
        host=(*trace.host, *copies),
        busy=tuple(tuple(spans) for spans in streams.values()),
        open_ops=(),
        executions=executions(kernels),
        modules=devices.modules,
        kernels=tuple(kernels),
        copies=tuple(devices.copies),
        devices=devices.properties,
    )


class _Reader:
    """Collects the lines of the host plane."""

    def __init__(self, module: str, devices: DeviceReader) -> None:
        self.module, self.devices = module, devices
        self.modules: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.steps: list[Span] = []
        self.host: list[Span] = []
        self.threads: list[list[Span]] = []
        self.regions: list[list[tuple[int, float, float]]] = []
        self.closures: dict[int, tuple[int, float]] = {}  # closure -> (thread, time) of its hand-over
        self.started: dict[int, Span] = {}
        self.ended: dict[int, float] = {}

    def line(self, line: Any) -> None:
        """Reads one thread."""
        ops: list[Span] = []
        regions: list[tuple[int, float, float]] = []
        running: tuple[int, float] | None = None
        thread = len(self.threads)
        for event in sorted(line.events, key=lambda event: (event.start_ns, -event.duration_ns)):
            name, start = event.name, event.start_ns
            if name.startswith("ThreadpoolListener::"):
                stats = dict(event.stats)
                if name.endswith("Record"):
                    self.closures[stats["_p"]] = (thread, start)
                elif name.endswith("StartRegion"):
                    running = (stats["_c"], start)
                elif running is not None:
                    regions.append((*running, start))
                    running = None
            elif name.startswith("end: "):
                self.ended[dict(event.stats).get("_c", -1)] = event.end_ns
            elif name == STEP:
                self.steps.append(Span(name, start, event.end_ns))
            elif name in HOST_PARTS or name in PREPARATION:
                self.host.append(Span(name, start, event.end_ns))
            else:
                stats = dict(event.stats)
                if "correlation_id" in stats:
                    self.devices.launch(event)
                if "hlo_op" not in stats:
                    continue
                self.modules[stats.get("hlo_module", "")] += 1
                if self.module and stats.get("hlo_module") != self.module:
                    continue
                span = Span(stats["hlo_op"], start, event.end_ns)
                self.executions[span.name] += 1
                self.started[stats.get("_p", -1 - len(self.started))] = span
                ops.append(span)
        self.threads.append(ops)
        self.regions.append(regions)

    def result(self, warnings: list[str]) -> Trace:
        """Everything, with each region of the pool named after the op that handed it over."""
        pieces = [list(leaves(tuple(ops))) for ops in self.threads]
        starts = [[span.start_ns for span in each] for each in pieces]
        owners: dict[int, str | None] = {}
        region_starts = [[region[1] for region in regions] for regions in self.regions]

        def owner(closure: int) -> str | None:
            """The op in whose event, or in whose closure, a closure was handed over."""
            chain = []
            found: str | None = None
            while closure not in owners:
                owners[closure] = None  # a cycle cannot be, but a broken trace may claim one
                chain.append(closure)
                if closure not in self.closures:
                    break
                thread, time = self.closures[closure]
                index = bisect.bisect_right(starts[thread], time) - 1
                if index >= 0 and pieces[thread][index].end_ns >= time:
                    found = pieces[thread][index].name
                    break
                index = bisect.bisect_right(region_starts[thread], time) - 1
                if index < 0 or self.regions[thread][index][2] < time:
                    break
                closure = self.regions[thread][index][0]
            else:
                found = owners[closure]
            for each in chain:
                owners[each] = found
            return found

        busy = []
        for ops, regions in zip(self.threads, self.regions, strict=True):
            spans = list(ops)
            for closure, start, end in regions:
                name = owner(closure)
                if name is not None:
                    spans.append(Span(name, start, end))
            if spans:
                busy.append(tuple(sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))))
        open_ops = tuple(
            Span(span.name, span.start_ns, max(span.end_ns, self.ended.get(key, span.end_ns)))
            for key, span in self.started.items()
        )
        by_start = sorted(self.steps, key=lambda span: span.start_ns)
        return Trace(
            tuple(by_start), tuple(self.host), tuple(busy), open_ops, self.executions, self.modules, tuple(warnings)
        )


def leaves(spans: tuple[Span, ...]) -> Iterator[Span]:
    """Cuts one thread's nested spans into pieces that do not overlap, each named after the innermost span."""
    stack: list[Span] = []
    position = 0.0
    for span in spans:
        while stack and stack[-1].end_ns <= span.start_ns:
            top = stack.pop()
            if top.end_ns > position:
                yield Span(top.name, position, top.end_ns)
                position = top.end_ns
        if stack and span.start_ns > position:
            yield Span(stack[-1].name, position, span.start_ns)
        position = max(position, span.start_ns)
        stack.append(span)
    while stack:
        top = stack.pop()
        if top.end_ns > position:
            yield Span(top.name, position, top.end_ns)
            position = top.end_ns
