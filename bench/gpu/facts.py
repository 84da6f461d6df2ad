"""What a program compiled for a GPU is made of: kernels, scatters, arrays of the edges' size, collectives."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jhgnn.profiling.hlo import FLOATS, Computation, Instruction, Module

NO_KERNEL = frozenset(
    {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "opt-barrier"}
    | {"after-all", "partition-id", "replica-id"}
)
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")


LEAST_BYTES = 2**20
"""Of an array that is worth to be called one of the edges' size; of smaller graphs XLA may keep one."""


class Size(NamedTuple):
    """Of a semantic graph: its edges, and the vertices of its larger side."""

    edges: int
    vertices: int


def facts_of(module: Module, graphs: Mapping[str, Size], width: int) -> dict[str, Any]:
    """The figures of one program.

    Args:
        module: as compiled and scheduled.
        graphs: that it aggregates over.
        width: floats of a message, all heads together.
    """
    scatters = list(_scatters(module))
    return {
        "kernels": sum(not _is_free(each) for _, each in _executed(module)),
        "launches": _launches(module, module.entry),
        "loops": sum(each.opcode == "while" for _, each in _executed(module)),
        "float_scatters": [_named(each) for each in scatters if _is_float(each) and not _has_own_row(each)],
        "row_writes": sum(_is_float(each) and _has_own_row(each) for each in scatters),
        "integer_scatters": sum(not _is_float(each) for each in scatters),
        "edge_wide_arrays": [_named(each) for each in _edge_wide(module, graphs, width)],
        "custom_calls": _custom_calls(module),
        "collectives": _collectives(module),
    }


def _executed(module: Module) -> Iterator[tuple[Computation, Instruction]]:
    for computation in module.executed.values():
        for instruction in computation.instructions.values():
            yield computation, instruction


def _is_free(instruction: Instruction) -> bool:
    return instruction.opcode in NO_KERNEL or instruction.opcode.endswith("-done")


def _launches(module: Module, computation: Computation) -> int:
    """Kernels that one run starts; loops count as often as XLA knows that they run, or once."""
    total = 0
    for instruction in computation.instructions.values():
        if instruction.opcode == "while":
            known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', instruction.attributes)
            inside = sum(_launches(module, module.computations[name]) for name in instruction.called)
            total += inside * (int(known.group(1)) if known else 1)
        elif instruction.opcode in ("call", "conditional"):
            total += sum(_launches(module, module.computations[name]) for name in instruction.called)
        else:
            total += not _is_free(instruction)
    return total


def _scatters(module: Module) -> Iterator[Instruction]:
    """Those that run alone and those inside of fusions."""
    for _, instruction in _executed(module):
        if instruction.opcode == "scatter":
            yield instruction
        elif instruction.opcode == "fusion":
            yield from (each for _, each in module.inside(instruction) if each.opcode == "scatter")


def _is_float(instruction: Instruction) -> bool:
    return any(array.dtype in FLOATS for array in instruction.arrays)


def _has_own_row(scatter: Instruction) -> bool:
    """Whether no two updates meet, so that it is written like any other result."""
    return "unique_indices=true" in scatter.attributes


def _edge_wide(module: Module, graphs: Mapping[str, Size], width: int) -> Iterator[Instruction]:
    """Results that are written in neighbor aggregation, as large as a message an edge of the graph that it is along,
    and larger than one a vertex.
    """
    for _, instruction in _executed(module):
        found = re.search(r"\bNA\)*/([^/\"]+)", instruction.op_name)
        size = graphs.get(found.group(1)) if found else None
        if size is None or _is_free(instruction):
            continue
        for array in instruction.arrays:
            rows_of_vertices = size.vertices * width
            # The rows of several graphs' vertices side by side, as fusion takes them, may be as many as edges.
            stacked = array.size % rows_of_vertices == 0 and array.size <= len(graphs) * rows_of_vertices
            messages = array.size >= size.edges * width and array.size > rows_of_vertices and not stacked
            if array.dtype in FLOATS and messages and array.num_bytes >= LEAST_BYTES:
                yield instruction
                break


def _custom_calls(module: Module) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, instruction in _executed(module):
        if instruction.opcode == "custom-call":
            found[instruction.custom_call_target] = found.get(instruction.custom_call_target, 0) + 1
    return dict(sorted(found.items()))


def _collectives(module: Module) -> list[dict[str, Any]]:
    """Each with the bytes of its result on a device, and the kernels that run between its start and its end."""
    found = []
    for computation, instruction in _executed(module):
        kind = next((kind for kind in COLLECTIVES if instruction.opcode in (kind, f"{kind}-start")), None)
        if kind is None:
            continue
        order = list(computation.instructions.values())
        between = 0
        if instruction.opcode.endswith("-start"):
            begin = order.index(instruction)
            end = next(i for i, each in enumerate(order) if instruction.name in each.operands and i > begin)
            between = sum(not _is_free(each) for each in order[begin + 1 : end])
        arrays = instruction.arrays
        if kind != "all-reduce" and instruction.opcode.endswith("-start"):
            arrays = arrays[len(arrays) // 2 :]  # operands stand beside results
        found.append({"kind": kind, "bytes": sum(each.num_bytes for each in arrays), "kernels_meanwhile": between})
    return found


def _named(instruction: Instruction) -> str:
    shape = ", ".join(f"{array.dtype}[{','.join(map(str, array.dims))}]" for array in instruction.arrays)
    return f"{shape} {instruction.op_name}"
