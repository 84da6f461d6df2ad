"""What a compiled program makes its devices exchange."""

import dataclasses

from jhgnn.profiling.hlo import Module

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
"""Opcodes of HLO by which devices exchange arrays."""


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Of all collectives of one kind.

    Attributes:
        count: how many there are; one within a loop counts once.
        num_bytes: of their results on one device.
    """

    count: int = 0
    num_bytes: int = 0


def collectives(module: Module) -> dict[str, Exchange]:
    """The collectives of a program by kind, in the order of `KINDS`; empty for a program of one device.

    An asynchronous collective counts where it is done, since the result of its start holds its operands as well.
    """
    found: dict[str, Exchange] = {}
    for kind in KINDS:
        results = [
            instruction
            for computation in module.executed.values()
            for instruction in computation.instructions.values()
            if instruction.opcode in (kind, f"{kind}-done")
        ]
        if results:
            found[kind] = Exchange(len(results), sum(each.num_bytes for each in results))
    return found
