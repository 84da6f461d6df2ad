"""The paper's four kernel types, and what type each HLO op and each native kernel is.

DM: dense matrix multiplication. TB: driven by the graph's topology (gather, scatter, sparse products, edge softmax).
EW: element-wise and reductions. DR: data rearrangement (copy, concatenate, transpose, sort).
(Characterization paper, section 4.1.1.)
"""

from typing import Literal

from jhgnn.native import HANDLERS, cuda
from jhgnn.profiling.hlo import Instruction, Module
from jhgnn.profiling.scopes import work

KernelType = Literal["DM", "TB", "EW", "DR"]
KERNEL_TYPES: dict[KernelType, str] = {
    "DM": "dense matrix multiplication",
    "TB": "topology-based",
    "EW": "element-wise",
    "DR": "data rearrangement",
}

OPCODE_TYPES: dict[str, KernelType] = {
    **dict.fromkeys(("dot", "convolution", "cholesky", "triangular-solve"), "DM"),
    **dict.fromkeys(("gather", "scatter"), "TB"),
    **dict.fromkeys(
        (
            "copy", "copy-start", "copy-done", "concatenate", "transpose", "reverse", "sort", "pad", "slice",
            "dynamic-slice", "dynamic-update-slice", "reshape", "bitcast", "bitcast-convert", "broadcast", "iota",
            "tuple", "get-tuple-element", "constant", "parameter", "all-gather", "all-reduce", "all-to-all",
            "reduce-scatter", "collective-permute", "infeed", "outfeed", "opt-barrier",
        ),
        "DR",
    ),
}  # fmt: skip
"""Every opcode that is not listed is element-wise (EW): arithmetic, comparisons, conversions, select, reduce, map.

Loops and calls (`while`, `conditional`, `call`) have what runs inside them as ops of their own; the little that is left
is bookkeeping and counts as EW.
"""

CUSTOM_CALL_TYPES: dict[str, KernelType] = {
    **{f"jhgnn_{name}": kind for name, kind in {**HANDLERS, **cuda.HANDLERS}.items()},
    "__onednn$matmul": "DM",
    "__cublas$gemm": "DM",
    "__cublas$lt$matmul": "DM",
    "__cublas$lt$matmul$f8": "DM",
    "__cub$DeviceRadixSort": "DR",
    "TopK": "DR",
}
"""Our native kernels, and those of libraries that XLA calls for such programs; others count as EW."""


def kernel_type(module: Module, instruction: Instruction) -> KernelType:
    """The type of one op; a fusion has the type that most of its work has, and DM or TB wins over EW and DR.

    A fusion that gathers rows and multiplies them is a topology-based kernel however many products it computes: its
    access pattern is the gather's.
    """
    if instruction.opcode == "custom-call":
        return CUSTOM_CALL_TYPES.get(instruction.custom_call_target, "EW")
    if instruction.opcode != "fusion":
        return OPCODE_TYPES.get(instruction.opcode, "EW")
    weights: dict[KernelType, float] = dict.fromkeys(KERNEL_TYPES, 0.0)
    for computation, inner in module.inside(instruction):
        weights[OPCODE_TYPES.get(inner.opcode, "EW")] += work(computation, inner)
    for strong in ("DM", "TB"):
        if weights[strong] > 0:
            return strong
    return "EW" if weights["EW"] > 0 else "DR"


def kernel_name(module: Module, instruction: Instruction) -> str:
    """What a table calls the kernel: its custom call, or its opcode; for a fusion the opcode with most work inside."""
    if instruction.opcode == "custom-call":
        return instruction.custom_call_target or instruction.opcode
    if instruction.opcode != "fusion":
        return instruction.opcode
    wanted = kernel_type(module, instruction)
    weights: dict[str, float] = {}
    for computation, inner in module.inside(instruction):
        if OPCODE_TYPES.get(inner.opcode, "EW") == wanted:
            weights[inner.opcode] = weights.get(inner.opcode, 0.0) + work(computation, inner)
    return f"fusion of {max(weights, key=lambda opcode: weights[opcode])}" if weights else "fusion"
