"""The compiled program as data: XLA's HLO text read into instructions and computations, nothing interpreted."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

from jhgnn.errors import InputError

DTYPE_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "f8e4m3fn": 8, "f8e5m2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128, "token": 0,
    "opaque": 0,
}  # fmt: skip
FLOATS = frozenset({"f8e4m3fn", "f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128"})

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_COMMENT = re.compile(r"/\*.*?\*/")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_CALLED = re.compile(r"\b(?:calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Array:
    """Dtype and dimensions of one array."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def num_bytes(self) -> int:
        return -(-self.size * DTYPE_BITS.get(self.dtype, 32) // 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One HLO instruction; `arrays` are the leaves of its result, `called` the computations that it names."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    op_name: str
    called: tuple[str, ...]
    attributes: str
    is_root: bool

    @property
    def num_bytes(self) -> int:
        return sum(array.num_bytes for array in self.arrays)

    @property
    def size(self) -> int:
        return sum(array.size for array in self.arrays)

    @property
    def custom_call_target(self) -> str:
        """The name of the kernel that a custom call runs; empty for every other opcode."""
        match = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return match.group(1) if match else ""

    def dimensions(self, attribute: str) -> tuple[int, ...]:
        """The integers of `attribute={...}`."""
        match = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.attributes)
        return tuple(int(each) for each in match.group(1).split(",") if each) if match else ()


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions in program order, which is the schedule where the module is scheduled."""

    name: str
    instructions: Mapping[str, Instruction]

    @property
    def root(self) -> Instruction:
        return next(each for each in self.instructions.values() if each.is_root)

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Instruction name -> those that read it."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self.instructions.values():
            for operand in instruction.operands:
                users[operand].append(instruction)
        return users

    def operands(self, instruction: Instruction) -> list[Instruction]:
        return [self.instructions[name] for name in instruction.operands]


@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program."""

    name: str
    entry: Computation
    computations: Mapping[str, Computation]

    @functools.cached_property
    def executed(self) -> dict[str, Computation]:
        """Computations whose instructions run as ops of their own, so not those of fusions and reducers; by name."""
        found, todo = {self.entry.name: self.entry}, [self.entry]
        while todo:
            for instruction in todo.pop().instructions.values():
                if instruction.opcode in ("while", "conditional", "call", "async-start"):
                    for name in instruction.called:
                        if name not in found:
                            found[name] = self.computations[name]
                            todo.append(found[name])
        return found

    @functools.cached_property
    def home(self) -> dict[str, Computation]:
        """Executed instruction -> the computation that holds it."""
        return {name: each for each in self.executed.values() for name in each.instructions}

    @functools.cached_property
    def callers(self) -> dict[str, Instruction]:
        """Executed computation -> the while, call or conditional that runs it."""
        return {
            name: instruction
            for computation in self.executed.values()
            for instruction in computation.instructions.values()
            for name in instruction.called
            if name in self.executed
        }

    def instruction(self, name: str) -> Instruction | None:
        """The executed instruction of that name."""
        computation = self.home.get(name)
        return computation.instructions[name] if computation else None

    def inside(self, fusion: Instruction) -> Iterator[tuple[Computation, Instruction]]:
        """All instructions of a fusion, nested fusions opened."""
        for name in fusion.called:
            computation = self.computations[name]
            for instruction in computation.instructions.values():
                if instruction.opcode == "fusion":
                    yield from self.inside(instruction)
                else:
                    yield computation, instruction


def parse(text: str, where: str = "HLO text") -> Module:
    """Reads `compiled.as_text()`.

    Raises:
        InputError: it is not HLO text, or it has no entry computation.
    """
    header = re.match(r"HloModule ([\w.\-]+)", text)
    if header is None:
        raise InputError(f"{where}: not HLO text: it starts with {text[:30]!r}, not 'HloModule NAME'")
    computations: dict[str, Computation] = {}
    entry: str | None = None
    name = ""
    instructions: dict[str, Instruction] = {}
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):
            name, instructions = opening.group(2), {}
            entry = name if opening.group(1) else entry
        elif line.startswith("}") and name:
            computations[name] = Computation(name, instructions)
            name = ""
        elif name and (match := _INSTRUCTION.match(line)):
            instructions[match.group(2)] = _instruction(match.group(2), match.group(3), bool(match.group(1)))
    if entry is None or entry not in computations:
        raise InputError(f"{where}: truncated HLO text: no complete ENTRY computation")
    return Module(header.group(1), computations[entry], computations)


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    text = _COMMENT.sub("", text)
    type_end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    opening = text.index("(", type_end)
    closing = _closing(text, opening)
    attributes = text[closing + 1 :]
    op_name = _OP_NAME.search(attributes)
    called = _CALLED.findall(attributes)
    for branches in _BRANCHES.findall(attributes):
        called += [branch.strip().lstrip("%") for branch in branches.split(",")]
    opcode = text[type_end:opening].strip()
    literal = opcode in ("constant", "parameter")
    return Instruction(
        name=name,
        opcode=opcode,
        arrays=tuple(
            Array(dtype, tuple(int(each.lstrip("<=")) for each in dims.split(",") if each))
            for dtype, dims in _ARRAY.findall(text[:type_end])
        ),
        operands=() if literal else tuple(re.findall(r"%([\w.\-]+)", text[opening : closing + 1])),
        op_name=op_name.group(1).replace("\\'", "'").replace('\\"', '"') if op_name else "",
        called=tuple(called),
        attributes=attributes,
        is_root=is_root,
    )


def _closing(text: str, opening: int) -> int:
    """The index of the parenthesis that closes the one at `opening`; quotes are skipped."""
    depth, quoted = 0, False
    for index in range(opening, len(text)):
        character = text[index]
        if character == '"' and text[index - 1] != "\\":
            quoted = not quoted
        elif not quoted and character == "(":
            depth += 1
        elif not quoted and character == ")":
            depth -= 1
            if depth == 0:
                return index
    raise InputError(f"HLO text: unbalanced parentheses in {text[:80]!r}")
