"""Where the temporary memory of a compiled program goes, read from the program itself; nothing runs."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax

from jhgnn.profiling import hlo
from jhgnn.profiling.memory import Row, decode_assignment, residuals, rows_from_schedule, timeline
from jhgnn.profiling.scopes import attribute


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """Temporary bytes of a program by stage.

    Attributes:
        peak_bytes: live at the peak.
        at_peak: stage -> live at that moment, both directions together.
        kept: stage -> what its forward pass keeps for the backward pass.
    """

    peak_bytes: int
    at_peak: Mapping[str, int]
    kept: Mapping[str, int]


def module_proto(program: jax.stages.Compiled) -> bytes:
    """The program as a serialized `HloModuleProto`."""
    executable: Any = program.runtime_executable()
    return bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())


def assigned_rows(program: jax.stages.Compiled) -> list[Row] | None:
    """The places of a program's temporary values, from XLA's buffer assignment; None where XLA gives none."""
    stats = program.memory_analysis()
    assignment = getattr(stats, "serialized_buffer_assignment_proto", b"") if stats is not None else b""
    return decode_assignment(assignment, module_proto(program)) if assignment else None


def stage_memory(program: jax.stages.Compiled) -> StageMemory:
    """Temporary memory of a program by stage; of its shapes and schedule where XLA gives no assignment."""
    module = hlo.parse(program.as_text() or "")
    attributions, rows = attribute(module), assigned_rows(program)
    temp_bytes = int(getattr(program.memory_analysis(), "temp_size_in_bytes", 0))
    source = "schedule" if rows is None else "buffer assignment"
    line = timeline(module, attributions, rows_from_schedule(module) if rows is None else rows, temp_bytes, source)
    at_peak: Counter[str] = Counter()
    for label, num_bytes in line.peak_by_stage.items():
        at_peak[label.partition(".")[0]] += num_bytes
    return StageMemory(line.peak_bytes, dict(at_peak), residuals(module, attributions))
