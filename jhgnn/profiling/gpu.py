"""Reads the planes that CUPTI gives XLA on a GPU (`/device:GPU:0`): kernels by stream, with occupancy and launch.

Each `Stream #N(...)` line is one CUDA stream; its events are kernels and copies. A kernel's stats name the HLO op that
launched it (`hlo_op`, `hlo_module`), the call on the host that did (`correlation_id`), its theoretical occupancy
(`theoretical_occupancy_pct`, or `occ_pct` in `kernel_details`), registers, grid and block. Lines that XLA derives from
the streams (`XLA Ops`, `Steps`, ...) repeat the same time and are not counted.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

PLANE = "/device:GPU:"
STREAM = "Stream #"
NO_OP = "(no HLO op)"
"""Kernels that no HLO op launched, such as memory sets of the runtime; they stay unattributed."""
_DETAIL = re.compile(r"(\w+):(\S+)")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One launch.

    Attributes:
        name: of the CUDA kernel, as Nsight Compute names it.
        op: HLO op, or `NO_OP`.
        device, stream: names of its plane and line.
        start_ns, end_ns: on the device.
        launch_ns: when the host began to launch it, or None where the trace does not tell.
        occupancy: theoretical, 0 to 1, or None.
        details: `regs`, `grid`, `block`, `static_shared`, `dynamic_shared` as CUPTI has them.
    """

    name: str
    op: str
    device: str
    stream: str
    start_ns: float
    end_ns: float
    launch_ns: float | None
    occupancy: float | None
    details: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Copy:
    """One transfer between host and device, or within the device, on a stream."""

    kind: str
    device: str
    stream: str
    start_ns: float
    end_ns: float


class DeviceReader:
    """Collects the streams of all GPU planes of a trace.

    Attributes:
        kernels, copies: in the order of the trace.
        modules: HLO module -> kernels that name it.
        properties: plane -> its own stats, such as `core_count`, `clock_rate`.
        launches: correlation id -> start of the call on the host, filled by `launch`.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.kernels: list[Kernel] = []
        self.copies: list[Copy] = []
        self.modules: Counter[str] = Counter()
        self.properties: dict[str, dict[str, Any]] = {}
        self.launches: dict[int, float] = {}

    def plane(self, plane: Any) -> None:
        """Reads one `/device:GPU:N` plane."""
        self.properties[plane.name] = {
            name: value for name, value in plane.stats if isinstance(value, int | float | str)
        }
        for line in plane.lines:
            if line.name.startswith(STREAM):
                for event in line.events:
                    self._event(plane.name, line.name, event)

    def launch(self, event: Any) -> None:
        """Notes a call of the host that launches a kernel."""
        correlation = dict(event.stats).get("correlation_id")
        if isinstance(correlation, int):
            self.launches[correlation] = event.start_ns

    def _event(self, device: str, stream: str, event: Any) -> None:
        stats = dict(event.stats)
        if "memcpy_details" in stats or "memset_details" in stats:
            kind = event.name if "memcpy_details" in stats else "Memset"
            self.copies.append(Copy(kind, device, stream, event.start_ns, event.end_ns))
            return
        if "hlo_module" in stats:
            self.modules[stats["hlo_module"]] += 1
            if self.module and stats["hlo_module"] != self.module:
                return
        details = dict(_DETAIL.findall(str(stats.get("kernel_details", ""))))
        occupancy = stats.get("theoretical_occupancy_pct", details.pop("occ_pct", None))
        self.kernels.append(
            Kernel(
                name=event.name,
                op=str(stats.get("hlo_op") or NO_OP),
                device=device,
                stream=stream,
                start_ns=event.start_ns,
                end_ns=event.end_ns,
                launch_ns=self.launches.get(stats.get("correlation_id", -1)),
                occupancy=None if occupancy is None else float(occupancy) / 100,
                details=details,
            )
        )


def executions(kernels: Sequence[Kernel]) -> Counter[str]:
    """How often each HLO op ran: one that launches several kernels counts by the least frequent of them."""
    by_kernel: dict[str, Counter[str]] = defaultdict(Counter)
    for each in kernels:
        if each.op != NO_OP:
            by_kernel[each.op][each.name] += 1
    return Counter({op: min(counts.values()) for op, counts in by_kernel.items()})


def kernel_rows(kernels: list[Kernel], num_steps: int) -> list[dict[str, Any]]:
    """Kernels by (device, stream, op, name), longest first: seconds and launches a step, occupancy weighted by time.

    `launch_delay_s` is the mean time from the launch on the host to the start on the device; null where unknown.
    """
    groups: dict[tuple[str, str, str, str], list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.device, kernel.stream, kernel.op, kernel.name].append(kernel)
    rows = []
    for (device, stream, op, name), members in groups.items():
        seconds = sum(each.end_ns - each.start_ns for each in members) / 1e9
        known = [each for each in members if each.occupancy is not None]
        known_s = sum(each.end_ns - each.start_ns for each in known) / 1e9
        delays = [each.start_ns - each.launch_ns for each in members if each.launch_ns is not None]
        occupancy = None
        if known:
            weights = [(each.end_ns - each.start_ns) / 1e9 / known_s if known_s else 1 / len(known) for each in known]
            occupancy = sum(weight * (each.occupancy or 0.0) for weight, each in zip(weights, known, strict=True))
        rows.append(
            {
                "device": device,
                "stream": stream,
                "op": op,
                "kernel": name,
                "seconds": seconds / max(1, num_steps),
                "launches": len(members) / max(1, num_steps),
                "occupancy": occupancy,
                "launch_delay_s": sum(delays) / len(delays) / 1e9 if delays else None,
                **{key: members[0].details.get(key) for key in ("regs", "grid", "block")},
            }
        )
    return sorted(rows, key=lambda row: -row["seconds"])


def stream_rows(kernels: list[Kernel], copies: list[Copy], num_steps: int) -> list[dict[str, Any]]:
    """By stream: kernels, copies, and seconds a step in which it is busy."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    everything: list[Kernel | Copy] = [*kernels, *copies]
    for each in everything:
        row = found.setdefault(
            (each.device, each.stream),
            {"device": each.device, "stream": each.stream, "kernels": 0.0, "copies": 0.0, "busy_s": 0.0},
        )
        row["kernels" if isinstance(each, Kernel) else "copies"] += 1 / max(1, num_steps)
        row["busy_s"] += (each.end_ns - each.start_ns) / 1e9 / max(1, num_steps)
    return list(found.values())
