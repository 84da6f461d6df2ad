"""Memory over a step by stage: buffer sizes and addresses from XLA's buffer assignment, lifetimes from its schedule.

The assignment says where each value lies (allocation, offset, size) and which values share a place; when a value dies
follows from its last reader in the scheduled program. Live bytes are counted as the union of live addresses, so values
that alias (loops, updates in place) count once. Everything inside a loop's body counts for the whole loop.
Arguments (parameters, optimizer state, features, graphs) are live throughout and reported as one figure.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jhgnn.profiling.hlo import Computation, Instruction, Module
from jhgnn.profiling.scopes import Attribution, Scope

Row = list[Any]
"""[instruction, shape index, allocation, offset, bytes], as stored in `*.buffers.json`."""

_VIEWS = ("bitcast", "get-tuple-element", "tuple", "while", "opt-barrier", "call", "conditional")


@dataclasses.dataclass(frozen=True)
class Buffer:
    """One value in temporary memory and the part of the schedule in which it is live (both ends included)."""

    instruction: str
    allocation: int
    offset: int
    num_bytes: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Temporary bytes by stage at each position of the entry schedule.

    Attributes:
        ops: names of the scheduled ops.
        by_stage: `STAGE.direction` -> bytes at each position.
        peak_bytes: the largest sum, at `peak_op`.
        temp_bytes: what XLA allocates for temporaries, at least the peak (the rest is fragmentation).
        source: `buffer assignment` or `schedule` (sizes from shapes where no assignment was saved).
    """

    ops: tuple[str, ...]
    by_stage: Mapping[str, tuple[int, ...]]
    peak_bytes: int
    peak_op: str
    peak_by_stage: Mapping[str, int]
    temp_bytes: int
    source: str


def decode_assignment(assignment: bytes, hlo_proto: bytes) -> list[Row]:
    """The temporary values of a serialized `BufferAssignmentProto`, with names from the module's proto.

    Both are protocol buffers of XLA (`xla/service/hlo.proto`); only the fields named here are read.
    """
    names = {}
    for field, computation in _fields(hlo_proto):
        if field == 3:  # HloModuleProto.computations
            for inner, instruction in _fields(computation):
                if inner == 2:  # HloComputationProto.instructions
                    found = dict(_fields(instruction))
                    names[found.get(35, 0)] = found[1].decode()  # id, name
    values = {}
    allocations = []
    for field, content in _fields(assignment):
        if field == 1:  # logical_buffers: id, size, defined_at
            buffer = dict(_fields(content))
            location = list(_fields(buffer.get(3, b"")))
            ids = [value for key, value in location if key == 4]
            index = [each for key, value in location if key == 3 for each in _packed(value)]
            values[buffer.get(1, 0)] = (names.get(ids[0] if ids else 0, ""), index)
        elif field == 3:  # buffer_allocations
            allocations.append(list(_fields(content)))
    rows: list[Row] = []
    for fields in allocations:
        plain = {key: value for key, value in fields if key != 9}
        if plain.get(3) or plain.get(5) or plain.get(12):  # thread local, parameter, constant
            continue
        for key, content in fields:
            if key == 9:  # assigned: logical buffer, offset, size
                part = dict(_fields(content))
                name, index = values.get(part.get(1, 0), ("", []))
                if name:
                    rows.append([name, index, plain.get(1, 0), part.get(2, 0), part.get(3, 0)])
    return rows


def rows_from_schedule(module: Module) -> list[Row]:
    """Where no assignment was saved: every value that is made has a place of its own, as large as its shape."""
    rows: list[Row] = []
    for computation in module.executed.values():
        for instruction in computation.instructions.values():
            if instruction.opcode in (*_VIEWS, "parameter", "constant"):
                continue
            several = len(instruction.arrays) > 1
            for index, array in enumerate(instruction.arrays):
                rows.append([instruction.name, [index] if several else [], len(rows), 0, array.num_bytes])
    return rows


def timeline(
    module: Module,
    attributions: Mapping[str, Attribution],
    rows: list[Row],
    temp_bytes: int,
    source: str,
) -> Timeline:
    """The memory timeline of a compiled program."""
    buffers = _live(module, rows)
    ops = tuple(module.entry.instructions)
    starts: dict[int, list[Buffer]] = defaultdict(list)
    ends: dict[int, list[Buffer]] = defaultdict(list)
    for buffer in buffers:
        starts[buffer.first].append(buffer)
        ends[buffer.last].append(buffer)
    keys = sorted({_label(attributions, buffer.instruction) for buffer in buffers})
    series: dict[str, list[int]] = {key: [] for key in keys}
    active: dict[int, list[Buffer]] = defaultdict(list)
    sums: dict[int, Counter[str]] = {}
    total: Counter[str] = Counter()
    peak, peak_at = 0, 0
    peak_stages: dict[str, int] = {}
    for position in range(len(ops)):
        touched = set()
        for buffer in starts[position]:
            active[buffer.allocation].append(buffer)
            touched.add(buffer.allocation)
        _refresh(touched, active, sums, total, attributions)
        for key in keys:
            series[key].append(total[key])
        if total.total() > peak:
            peak, peak_at = total.total(), position
            peak_stages = {key: total[key] for key in keys if total[key]}
        touched = set()
        for buffer in ends[position]:
            active[buffer.allocation].remove(buffer)
            touched.add(buffer.allocation)
        _refresh(touched, active, sums, total, attributions)
    return Timeline(
        ops=ops,
        by_stage={key: tuple(values) for key, values in series.items()},
        peak_bytes=peak,
        peak_op=ops[peak_at] if ops else "",
        peak_by_stage=peak_stages,
        temp_bytes=temp_bytes,
        source=source,
    )


def residuals(module: Module, attributions: Mapping[str, Attribution]) -> dict[str, int]:
    """Bytes that each stage's forward pass keeps for the backward pass.

    A value counts if an op that is forward made it and an op that is backward or recomputing reads it; the stage is its
    maker's. Arguments of the step, which the backward pass reads as well, are no residuals.
    """
    saved: Counter[str] = Counter()
    computation = module.entry
    for instruction in computation.instructions.values():
        maker = attributions[instruction.name].main
        if maker is None or maker.direction != "forward" or instruction.opcode in (*_VIEWS, "parameter", "constant"):
            continue
        arrays = {(): instruction.arrays[0]} if len(instruction.arrays) == 1 else dict(_indexed(instruction))
        for index, array in arrays.items():
            readers = [user for user, _ in _readers(computation, instruction, index)]
            mains = [attributions[reader.name].main for reader in readers if reader.opcode not in _VIEWS]
            if any(main is not None and main.direction in ("backward", "recompute") for main in mains):
                saved[maker.stage] += array.num_bytes
    return dict(saved)


def _indexed(instruction: Instruction) -> Iterator[tuple[tuple[int, ...], Any]]:
    for index, array in enumerate(instruction.arrays):
        yield (index,), array


def _label(attributions: Mapping[str, Attribution], instruction: str) -> str:
    attribution = attributions.get(instruction)
    main: Scope | None = attribution.main if attribution else None
    return f"{main.stage}.{main.direction}" if main else "other"


def _refresh(
    touched: set[int],
    active: Mapping[int, list[Buffer]],
    sums: dict[int, Counter[str]],
    total: Counter[str],
    attributions: Mapping[str, Attribution],
) -> None:
    """Counts the touched allocations again; bytes at which two live values overlap belong to the earlier one."""
    for allocation in touched:
        total.subtract(sums.get(allocation, Counter()))
        counted: Counter[str] = Counter()
        covered = -1
        for buffer in sorted(active[allocation], key=lambda each: (each.offset, each.first)):
            end = buffer.offset + buffer.num_bytes
            if end > covered:
                counted[_label(attributions, buffer.instruction)] += end - max(buffer.offset, covered)
                covered = end
        sums[allocation] = counted
        total.update(counted)


def _live(module: Module, rows: list[Row]) -> list[Buffer]:
    positions = {name: position for position, name in enumerate(module.entry.instructions)}
    last = len(positions) - 1
    outer: dict[str, int] = {}
    for computation in module.executed:
        name = computation
        while name != module.entry.name:
            caller = module.callers[name]
            name = module.home[caller.name].name
            outer[computation] = positions.get(caller.name, 0)
    result = []
    for name, index, allocation, offset, num_bytes in rows:
        home = module.home.get(name)
        if home is None or not num_bytes:
            continue
        if home.name != module.entry.name:
            at = outer[home.name]
            result.append(Buffer(name, allocation, offset, num_bytes, at, at))
            continue
        instruction = home.instructions[name]
        end = positions[name]
        for user, _ in _readers(home, instruction, tuple(index)):
            end = last if user.is_root else max(end, positions[user.name])
        if instruction.is_root:
            end = last
        result.append(Buffer(name, allocation, offset, num_bytes, positions[name], end))
    return result


def _readers(
    computation: Computation, instruction: Instruction, index: tuple[int, ...]
) -> Iterator[tuple[Instruction, tuple[int, ...]]]:
    """Everything that reads one element of a result, also through tuples, views and loops."""
    todo, seen = [(instruction, index)], set()
    while todo:
        value, at = todo.pop()
        for user in computation.users[value.name]:
            following: list[tuple[int, ...]] = []
            if user.opcode == "get-tuple-element":
                position = user.attributes.partition("index=")[2].partition(",")[0].strip()
                if not at or not position.isdigit() or at[0] == int(position):
                    following = [at[1:]]
                else:
                    continue
            elif user.opcode == "tuple":
                following = [(place, *at) for place, name in enumerate(user.operands) if name == value.name]
            elif user.opcode in _VIEWS:
                following = [at]
            yield user, at
            for place in following:
                if (user.name, place) not in seen:
                    seen.add((user.name, place))
                    todo.append((user, place))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of one protocol buffer message; integers, or bytes for everything with a length."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value: Any
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _packed(value: Any) -> list[int]:
    """A repeated integer, packed or not."""
    if isinstance(value, int):
        return [value]
    result, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        result.append(number)
    return result
