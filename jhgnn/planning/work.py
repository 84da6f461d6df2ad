"""How much a compiled program has to do, counted from its instructions: what a time can be predicted from.

XLA's own totals count a loop's body once and native kernels not at all. Here a body counts as often as it runs and
kernels by their formulas (`jhgnn.profiling.costs`).
"""

import dataclasses
import re

from jhgnn.profiling.costs import cost
from jhgnn.profiling.hlo import Module

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclasses.dataclass(frozen=True)
class Work:
    """Of one call of a program.

    Attributes:
        flops: float operations of XLA's ops, without products; `dot_flops`: those of products.
        transcendentals, integer_ops: of XLA's ops and of native kernels together.
        num_bytes: read and written at the borders of XLA's ops.
        gathered: elements that gathers read one row at a time.
        scattered: elements that scatters add.
        iterations: of loops' bodies.
        native_flops, native_bytes: of native kernels.
        ops: instructions that run.
    """

    flops: float = 0.0
    dot_flops: float = 0.0
    transcendentals: float = 0.0
    integer_ops: float = 0.0
    num_bytes: float = 0.0
    gathered: float = 0.0
    scattered: float = 0.0
    iterations: float = 0.0
    native_flops: float = 0.0
    native_bytes: float = 0.0
    ops: float = 0.0

    @property
    def total_flops(self) -> float:
        """All float operations and transcendentals."""
        return self.flops + self.dot_flops + self.transcendentals + self.native_flops


def work(module: Module) -> Work:
    """The work of a program; a loop whose trip count XLA does not know counts once."""
    times = _times(module)
    sums = dict.fromkeys((field.name for field in dataclasses.fields(Work)), 0.0)
    for name, computation in module.executed.items():
        runs = times[name]
        for instruction in computation.instructions.values():
            if instruction.opcode in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast"):
                continue
            if instruction.opcode == "while":
                sums["iterations"] += runs * _trips(instruction.attributes)
                continue
            found = cost(module, instruction)
            sums["ops"] += runs
            sums["transcendentals"] += runs * found.transcendentals
            sums["integer_ops"] += runs * found.integer_ops
            inside = [instruction]
            if instruction.opcode == "fusion":
                inside = [each for _, each in module.inside(instruction)]
            opcodes = {each.opcode for each in inside}
            sums["gathered"] += runs * sum(each.size for each in inside if each.opcode == "gather")
            if "scatter" in opcodes:
                sums["scattered"] += runs * sum(
                    module.computations[home].instructions[each.operands[-1]].size
                    for home, each in _scatters(module, instruction)
                )
            if instruction.opcode == "custom-call" and instruction.custom_call_target.startswith("jhgnn_"):
                sums["native_flops"] += runs * found.flops
                sums["native_bytes"] += runs * found.num_bytes
                continue
            sums["dot_flops" if _is_product(instruction, opcodes) else "flops"] += runs * found.flops
            sums["num_bytes"] += runs * found.num_bytes
    return Work(**sums)


def _scatters(module: Module, instruction):  # type: ignore[no-untyped-def]
    if instruction.opcode == "scatter":
        yield module.home[instruction.name].name, instruction
        return
    for computation, each in module.inside(instruction):
        if each.opcode == "scatter":
            yield computation.name, each


def _is_product(instruction, opcodes) -> bool:  # type: ignore[no-untyped-def]
    return "dot" in opcodes or "convolution" in opcodes


def _trips(attributes: str) -> int:
    match = _TRIPS.search(attributes)
    return int(match.group(1)) if match else 1


def _times(module: Module) -> dict[str, int]:
    """How often each executed computation runs in one call."""
    times = {module.entry.name: 1}

    def of(name: str) -> int:
        if name not in times:
            caller = module.callers[name]
            outer = of(module.home[caller.name].name)
            times[name] = outer * (_trips(caller.attributes) if caller.opcode == "while" else 1)
        return times[name]

    for name in module.executed:
        of(name)
    return times
