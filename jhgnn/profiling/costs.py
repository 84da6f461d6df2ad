"""Operations and bytes of one execution of an HLO op, from its shapes, by the rules of XLA's own cost model.

XLA gives its costs for a whole program; by op they have to be rebuilt. The rules are XLA's (`HloCostAnalysis`):
an element-wise op costs one operation an element, transcendentals are counted apart, a dot 2 M N K, a reduce one for
each element that it takes in; bytes are operands plus results at the border of a fusion, and of an operand that is only
sliced or gathered from, what is read of it. Integer arithmetic (the dropout hash) is kept apart from FLOPs.
Our native kernels, whose insides XLA does not see, have formulas of their own, counted in their source.
"""

import dataclasses
import re
from collections.abc import Callable

from jhgnn.profiling.hlo import FLOATS, Computation, Instruction, Module
from jhgnn.profiling.scopes import contracted

TRANSCENDENTAL = frozenset(
    {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "power", "sqrt", "rsqrt"}
    | {"cbrt", "sine", "cosine", "tan", "atan2", "erf"}
)
_FREE = frozenset(
    {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "broadcast", "iota", "reshape", "copy", "slice"}
    | {"transpose", "concatenate", "pad", "reverse", "gather", "dynamic-slice", "dynamic-update-slice", "custom-call"}
    | {"while", "conditional", "call", "fusion", "sort", "opt-barrier", "bitcast-convert", "convert", "after-all"}
    | {"copy-start", "copy-done", "rng-bit-generator", "partition-id", "replica-id"}
)
_NO_TRAFFIC = frozenset(
    {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "conditional", "call", "opt-barrier"}
    | {"after-all"}
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one execution: float operations, transcendentals, integer operations, and bytes read and written."""

    flops: float = 0.0
    transcendentals: float = 0.0
    integer_ops: float = 0.0
    num_bytes: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


def cost(module: Module, instruction: Instruction) -> Cost:
    """The cost of an executed instruction; loops and calls cost nothing beyond what runs inside them."""
    computation = module.home[instruction.name]
    if instruction.opcode == "custom-call":
        formula = NATIVE.get(instruction.custom_call_target)
        return formula(computation, instruction) if formula else Cost(num_bytes=_traffic(computation, instruction))
    if instruction.opcode != "fusion":
        work = _operations(computation, instruction)
        return dataclasses.replace(work, num_bytes=_traffic(computation, instruction))
    total = Cost()
    for inner_computation, inner in module.inside(instruction):
        total = total + _operations(inner_computation, inner)
    return dataclasses.replace(total, num_bytes=_fusion_traffic(module, instruction))


def _operations(computation: Computation, instruction: Instruction) -> Cost:
    opcode = instruction.opcode
    if opcode in _FREE:
        return Cost()
    if opcode == "dot":
        return Cost(flops=2.0 * instruction.size * contracted(computation, instruction))
    operands = computation.operands(instruction)
    if opcode == "reduce":
        count = float(max(0, sum(each.size for each in operands[: len(operands) // 2]) - instruction.size))
    elif opcode == "reduce-window":
        window = re.search(r"size=([\dx]+)", instruction.attributes)
        count = float(instruction.size)
        for side in (window.group(1) if window else "1").split("x"):
            count *= int(side)
        count -= instruction.size
    elif opcode == "scatter":
        count = float(operands[-1].size)
    else:
        count = float(instruction.size)
    if opcode in TRANSCENDENTAL:
        return Cost(transcendentals=count)
    read = operands[0].arrays[0].dtype if opcode == "compare" and operands else instruction.arrays[0].dtype
    return Cost(flops=count) if read in FLOATS else Cost(integer_ops=count)


def _traffic(computation: Computation, instruction: Instruction) -> float:
    """Bytes of an op that stands alone."""
    opcode, result = instruction.opcode, float(instruction.num_bytes)
    if opcode in _NO_TRAFFIC:
        return 0.0
    operands = computation.operands(instruction)
    if opcode == "gather":
        return 2 * result + operands[1].num_bytes
    if opcode in ("slice", "dynamic-slice"):
        return 2 * result
    if opcode == "dynamic-update-slice":
        return 2.0 * operands[1].num_bytes
    if opcode == "scatter":
        return 3.0 * operands[-1].num_bytes + operands[1].num_bytes
    return result + sum(each.num_bytes for each in operands)


def _fusion_traffic(module: Module, fusion: Instruction) -> float:
    """Bytes that cross the border of a fusion."""
    body = module.computations[fusion.called[0]]
    parameters = (each for each in body.instructions.values() if each.opcode == "parameter")
    total = sum(_read_of(body, parameter, parameter) for parameter in parameters)
    root = body.root
    while root.opcode == "bitcast":
        root = body.operands(root)[0]
    if root.opcode == "dynamic-update-slice":
        return total + body.operands(root)[1].num_bytes
    if root.opcode == "scatter":
        return total + body.operands(root)[-1].num_bytes
    return total + fusion.num_bytes


def _read_of(body: Computation, parameter: Instruction, value: Instruction) -> float:
    """What a fusion reads of one parameter: all of it, or the slices and rows that are taken from it."""
    taken = 0.0
    for user in body.users[value.name]:
        first = user.operands[0] == value.name
        if user.opcode == "bitcast":
            taken += _read_of(body, parameter, user)
        elif user.opcode in ("slice", "dynamic-slice", "gather") and first:
            taken += user.num_bytes
        elif user.opcode == "dynamic-update-slice" and first:
            continue  # written in place
        elif user.opcode == "scatter" and first:
            taken += body.operands(user)[-1].num_bytes
        else:
            return float(parameter.num_bytes)
    return min(taken, float(parameter.num_bytes)) if body.users[value.name] else 0.0


# --- native kernels: counted in native/attention_forward.h, attention_backward.h, row_attention.h, row_sum.h,
# outer_sum.h, logit_columns.h, basis_rows.h; the padding of tables counts ---

HASH_OPS = 8
"""Integer operations of one dropout draw: two multiplications, three shifts and xors (`native/counter_hash.h`)."""


def _attention_forward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: two products, a sum and a choice for its weight (two sums in training), 2 D to add its row.

    Training keeps two sums, of edges with positive and with negative logit. Rows are read packed, one an edge.
    """
    indptr, indices, z, *_ = computation.operands(call)
    edges, (heads, width) = indices.size, z.arrays[0].dims[1:]
    training = call.arrays[1].size > 0
    per_head = (6 + 4 * width) if training else (4 + 2 * width)
    targets = indptr.size - 1
    row_bytes = 4 * call.arrays[3].dims[1]
    drawn = _has_dropout(call)
    return Cost(
        flops=edges * heads * per_head + 2 * targets * heads * width,
        transcendentals=2.0 * heads * (z.arrays[0].dims[0] + targets),
        integer_ops=float(edges * heads * HASH_OPS if drawn else 0),
        num_bytes=float(_all_bytes(computation, call) + edges * row_bytes),
    )


def _attention_backward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: its weight (two products, two choices), two weighted rows (4 D), the logit's gradient (4)."""
    _, indices, z, *_ = computation.operands(call)
    edges, (heads, width) = indices.size, z.arrays[0].dims[1:]
    sources, targets = z.arrays[0].dims[0], call.arrays[2].dims[0]
    row_bytes = 4 * call.arrays[3].dims[1]
    return Cost(
        flops=edges * heads * (8 + 4 * width) + 4 * targets * heads * width + 6 * sources * heads * width,
        transcendentals=2.0 * heads * (sources + targets),
        integer_ops=float(edges * heads * HASH_OPS if _has_dropout(call) else 0),
        num_bytes=float(_all_bytes(computation, call) + edges * row_bytes),
    )


def _row_attention_forward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: 2 W for its logit and 2 W to add its row of W numbers; a receiver's sums are then projected."""
    return _row_attention(computation, call, edge_products=2, projections=1)


def _row_attention_backward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: 8 W (logit, row, the cotangent's product, the columns' gradient), 4 W more for x's gradient.

    A receiver's cotangent is taken back through the weight, and multiplied with its sums for the weight's gradient.
    """
    of_rows = call.arrays[0].size > 0
    return _row_attention(computation, call, edge_products=6 if of_rows else 4, projections=3 if of_rows else 2)


def _row_attention(computation: Computation, call: Instruction, *, edge_products: int, projections: int) -> Cost:
    senders, _, x, weight, columns, logit_dst, *_ = computation.operands(call)
    (targets, heads), in_width = logit_dst.arrays[0].dims, columns.arrays[0].dims[0]
    return Cost(
        flops=float(2 * senders.size * heads * in_width * edge_products + 2 * targets * weight.size * projections),
        transcendentals=float(senders.size * heads),
        integer_ops=float(senders.size * heads * HASH_OPS if _has_dropout(call) else 0),
        num_bytes=float(_all_bytes(computation, call) - x.num_bytes + senders.size * 4 * in_width),
    )


def _row_sum(computation: Computation, call: Instruction) -> Cost:
    """One addition an entry and column, one product more where entries or rows have weights; x is read by entry."""
    _, indices, weights, scale, x = computation.operands(call)
    return _sums_of_rows(computation, call, indices, weights, scale, x)


def _sums_of_rows(
    computation: Computation,
    call: Instruction,
    indices: Instruction,
    weights: Instruction,
    scale: Instruction,
    x: Instruction,
) -> Cost:
    width = x.arrays[0].dims[1]
    products = int(weights.size > 0) + int(scale.size > 0)
    row_bytes = x.num_bytes // max(1, x.arrays[0].dims[0])
    return Cost(
        flops=float(indices.size * width * (1 + min(products, 1)) + indices.size * max(0, products - 1)),
        num_bytes=float(_all_bytes(computation, call) - x.num_bytes + indices.size * row_bytes),
    )


def _row_sums(computation: Computation, call: Instruction) -> Cost:
    """`_row_sum` of weighted entries for each of several x, apart or stacked; entries are read again for each.

    Entries that dropout made zero count as well, though the kernel leaves them out: only a run knows how many they are.
    """
    _, indices, weights, *xs = computation.operands(call)
    columns, width = xs[0].arrays[0].dims[-2:]
    count = sum(x.size for x in xs) // max(1, columns * width)
    row_bytes = sum(x.num_bytes for x in xs) // max(1, columns * count)
    entries = (count - 1) * (indices.num_bytes + weights.num_bytes) + count * indices.size * row_bytes
    return Cost(
        flops=2.0 * count * indices.size * width,
        num_bytes=float(_all_bytes(computation, call) - sum(x.num_bytes for x in xs) + entries),
    )


def _by_entry(computation: Computation, call: Instruction) -> Cost:
    """Kernels that read one row an entry and do one multiply-add or comparison a column (edge_dot, row_max)."""
    _, indices, *rest = computation.operands(call)
    widest = max(rest, key=lambda each: each.num_bytes)
    rows = max(1, widest.arrays[0].dims[0] if widest.arrays[0].dims else 1)
    return Cost(
        flops=2.0 * indices.size * (widest.size // rows),
        num_bytes=float(_all_bytes(computation, call) + indices.size * (widest.num_bytes // rows)),
    )


def _outer_sum(computation: Computation, call: Instruction) -> Cost:
    """A multiply-add for each row and element of the result."""
    x, _ = computation.operands(call)
    rows = x.arrays[0].dims[0]
    return Cost(flops=2.0 * rows * call.size, num_bytes=float(_all_bytes(computation, call)))


def _logit_columns(computation: Computation, call: Instruction) -> Cost:
    """A multiply-add for each row and element of the vectors."""
    stack, vectors = computation.operands(call)
    flops = 2.0 * stack.arrays[0].dims[1] * vectors.size
    return Cost(flops=flops, num_bytes=float(_all_bytes(computation, call)))


def _logit_columns_backward(computation: Computation, call: Instruction) -> Cost:
    """Two, one for either gradient."""
    stack, vectors, _ = computation.operands(call)
    flops = 4.0 * stack.arrays[0].dims[1] * vectors.size
    return Cost(flops=flops, num_bytes=float(_all_bytes(computation, call)))


def _basis_rows(computation: Computation, call: Instruction) -> Cost:
    """A multiply-add for each entry, basis and column, and a product by the entry's value.

    All rows of the bases count as read, though the kernel leaves out those that no entry has; so do dropped entries.
    """
    _, slots, _, _, _, bases = computation.operands(call)
    count, _, width = bases.arrays[0].dims
    return Cost(flops=float(slots.size * width * (2 * count + 1)), num_bytes=float(_all_bytes(computation, call)))


def _basis_rows_backward(computation: Computation, call: Instruction) -> Cost:
    """Two, one for either gradient."""
    _, slots, _, _, _, bases, _ = computation.operands(call)
    count, _, width = bases.arrays[0].dims
    return Cost(flops=float(slots.size * width * (4 * count + 1)), num_bytes=float(_all_bytes(computation, call)))


def _column_parts(computation: Computation, call: Instruction) -> Cost:
    """Reads and writes everything once."""
    return Cost(num_bytes=float(_all_bytes(computation, call)))


def _all_bytes(computation: Computation, call: Instruction) -> int:
    return call.num_bytes + sum(each.num_bytes for each in computation.operands(call))


def _has_dropout(call: Instruction) -> bool:
    threshold = re.search(r"threshold = (\d+)", call.attributes)
    return threshold is not None and int(threshold.group(1)) > 0


# --- kernels for GPUs: counted in native/cuda/attention.h, csr_rows.h, table_rows.h; the padding of tables counts ---


def _cuda_attention_forward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: its logit (4), the sum of weights, 2 D to add its row, and an online exponential.

    Training keeps two sums, but an edge adds to one of them, by the sign of its logit.
    """
    _, _, indices, z, *_ = computation.operands(call)
    return _cuda_attention(computation, call, indices.size, z, per_head=5, rows_an_edge=1)


def _cuda_attention_backward(computation: Computation, call: Instruction) -> Cost:
    """An edge and head: its weight (6), the logit's gradient (4), and 4 D to add to two weighted sums."""
    _, _, indices, cotangent, *_ = computation.operands(call)
    return _cuda_attention(computation, call, indices.size, cotangent, per_head=10, rows_an_edge=2)


def _cuda_attention(
    computation: Computation, call: Instruction, edges: int, rows: Instruction, *, per_head: int, rows_an_edge: int
) -> Cost:
    heads, width = rows.arrays[0].dims[1:]
    row_bytes = rows.num_bytes // max(1, rows.arrays[0].dims[0])
    return Cost(
        flops=float(edges * heads * (per_head + 2 * rows_an_edge * width)),
        transcendentals=float(edges * heads),
        integer_ops=float(edges * heads * HASH_OPS if _has_dropout(call) else 0),
        num_bytes=float(_all_bytes(computation, call) - rows.num_bytes + edges * row_bytes),
    )


def _cuda_row_sum(computation: Computation, call: Instruction) -> Cost:
    """As `_row_sum`."""
    _, _, indices, weights, scale, x = computation.operands(call)
    return _sums_of_rows(computation, call, indices, weights, scale, x)


def _cuda_gather_rows(computation: Computation, call: Instruction) -> Cost:
    """Reads what it writes, and the ids."""
    _, ids = computation.operands(call)
    return Cost(num_bytes=float(ids.num_bytes + 2 * call.num_bytes))


def _cuda_write_rows(computation: Computation, call: Instruction) -> Cost:
    """Writes what it reads; the rest of the table is not touched."""
    _, ids, rows = computation.operands(call)
    return Cost(num_bytes=float(ids.num_bytes + 2 * rows.num_bytes))


NATIVE: dict[str, Callable[[Computation, Instruction], Cost]] = {
    "jhgnn_attention_forward": _attention_forward,
    "jhgnn_attention_backward": _attention_backward,
    "jhgnn_row_attention_forward": _row_attention_forward,
    "jhgnn_row_attention_backward": _row_attention_backward,
    "jhgnn_row_sum": _row_sum,
    "jhgnn_row_sums": _row_sums,
    "jhgnn_edge_dot": _by_entry,
    "jhgnn_row_max": _by_entry,
    "jhgnn_row_max_backward": _by_entry,
    "jhgnn_outer_sum": _outer_sum,
    "jhgnn_logit_columns": _logit_columns,
    "jhgnn_logit_columns_backward": _logit_columns_backward,
    "jhgnn_basis_rows": _basis_rows,
    "jhgnn_basis_rows_backward": _basis_rows_backward,
    "jhgnn_column_parts": _column_parts,
    "jhgnn_cuda_attention_forward": _cuda_attention_forward,
    "jhgnn_cuda_attention_backward": _cuda_attention_backward,
    "jhgnn_cuda_row_sum": _cuda_row_sum,
    "jhgnn_cuda_gather_rows": _cuda_gather_rows,
    "jhgnn_cuda_write_rows": _cuda_write_rows,
}
