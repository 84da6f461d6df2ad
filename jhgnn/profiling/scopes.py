"""Which stage an HLO op belongs to: `op_name` metadata, fusions split between stages, unnamed ops by data flow.

1. An op whose `op_name` holds a stage scope (`jhgnn.nn.stage`) belongs to it: `jit(f)/jvp(layer0/NA/PAP)/gather`.
   `transpose(` in the name is the backward pass, `rematted_computation` recomputing.
2. A fusion is split by the work of the instructions inside it: elements computed (multiply-adds of a dot, elements read
   by a reduce); parameters, constants and pure views count nothing. Instructions without a scope follow the others.
3. An op without a stage (copies that the compiler adds, code outside the stages such as dropout of the input) follows
   the data: forward, what reads its result; backward and in copies, what made its operands; at equal distance in equal
   shares. Its direction is its own where its name tells. These are counted apart, as `inferred`.
4. What is left (the step counter) is unattributed.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Literal

from jhgnn.profiling.hlo import Computation, Instruction, Module

STAGES = ("FP", "NA", "SF", "LC", "PU", "SAMPLE", "LOAD", "SYNC")
DEVICE_STAGES = ("FP", "NA", "SF", "LC", "PU")
Direction = Literal["forward", "backward", "recompute", "update"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "recompute", "update")
Source = Literal["named", "inferred", "none"]

_SCOPE = re.compile(rf"(?:^|[/(])(?:layer(\d+)/)?({'|'.join(STAGES)})(?=[/)]|$)(.*)")
_FREE = frozenset({"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "broadcast", "iota", "reshape"})
_PLUMBING = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call"}
)


@dataclasses.dataclass(frozen=True, order=True)
class Scope:
    """A stage of the step in one direction; `layer` is -1 outside layers, `part` a relation, metapath or node type."""

    stage: str
    direction: Direction
    layer: int = -1
    part: str = ""


@dataclasses.dataclass(frozen=True)
class Attribution:
    """Whose an op is: shares that sum to 1, or none where nothing is known."""

    shares: Mapping[Scope, float]
    source: Source

    @property
    def crosses(self) -> bool:
        """Whether more than 1 % of the op's work is of another stage or direction than the main one."""
        by_stage: dict[tuple[str, str], float] = defaultdict(float)
        for scope, share in self.shares.items():
            by_stage[scope.stage, scope.direction] += share
        return bool(by_stage) and max(by_stage.values()) < 0.99

    @property
    def main(self) -> Scope | None:
        """The scope with the largest share."""
        return max(self.shares, key=lambda scope: self.shares[scope]) if self.shares else None


def parse_scope(op_name: str, parts: Collection[str] = ()) -> Scope | None:
    """The stage scope in an `op_name`; of several joined by `;` the first that has one.

    Args:
        op_name: as in the metadata of an HLO instruction.
        parts: known names of relations, metapaths and node types, which may hold slashes.
    """
    for name in op_name.split(";"):
        match = _SCOPE.search(name)
        if match is None:
            continue
        layer, stage, rest = match.groups()
        direction = _direction(name) or "forward"
        if stage == "PU":
            return Scope(stage, "update")
        return Scope(stage, direction, int(layer) if layer else -1, _part(rest, parts))
    return None


def attribute(module: Module, parts: Collection[str] = ()) -> dict[str, Attribution]:
    """The attribution of every executed instruction."""
    known = sorted(parts, key=len, reverse=True)
    named: dict[str, dict[Scope, float]] = {}
    for computation in module.executed.values():
        for instruction in computation.instructions.values():
            if shares := _shares(module, instruction, known):
                named[instruction.name] = shares
    result = {}
    for computation in module.executed.values():
        for instruction in computation.instructions.values():
            if instruction.name in named:
                result[instruction.name] = Attribution(named[instruction.name], "named")
                continue
            shares = _inferred(module, computation, instruction, named)
            result[instruction.name] = Attribution(shares, "inferred" if shares else "none")
    return result


def work(computation: Computation, instruction: Instruction) -> float:
    """Elements that an instruction computes: what fusions are split by."""
    if instruction.opcode in _FREE:
        return 0.0
    if instruction.opcode in ("reduce", "reduce-window", "scatter"):
        operands = computation.operands(instruction)
        read = operands[-1] if instruction.opcode == "scatter" else operands[0]
        return float(max(read.size, instruction.size))
    if instruction.opcode == "dot":
        return float(instruction.size * contracted(computation, instruction))
    return float(instruction.size)


def contracted(computation: Computation, dot: Instruction) -> int:
    """Multiply-adds for one element of a dot's result."""
    left = computation.operands(dot)[0].arrays[0]
    count = 1
    for dimension in dot.dimensions("lhs_contracting_dims"):
        count *= left.dims[dimension]
    return count


def _direction(op_name: str) -> Direction | None:
    if "rematted_computation" in op_name:
        return "recompute"
    if "transpose(" in op_name:
        return "backward"
    return "forward" if "jvp(" in op_name else None


def _part(rest: str, parts: Collection[str]) -> str:
    rest = rest[1:] if rest.startswith("/") else ""
    for part in sorted(parts, key=len, reverse=True):
        if rest.startswith(part) and rest[len(part) : len(part) + 1] in ("", "/", ")"):
            return part
    if parts or not rest:
        return ""
    # Without known names: up to the parenthesis that closes jvp(...), or up to the next slash.
    inside = re.match(r"([^()]*)\)", rest)
    guess = inside.group(1) if inside else rest.partition("/")[0] if "/" in rest else ""
    return "" if "(" in guess else guess


def _shares(module: Module, instruction: Instruction, parts: Collection[str]) -> dict[Scope, float]:
    """The named scopes of one op, each with its share."""
    own = parse_scope(instruction.op_name, parts)
    if instruction.opcode != "fusion":
        return {own: 1.0} if own else {}
    weights: dict[Scope, float] = defaultdict(float)
    for computation, inner in module.inside(instruction):
        scope = parse_scope(inner.op_name, parts)
        if scope is not None:
            weights[scope] += work(computation, inner)
    total = sum(weights.values())
    if total <= 0:
        return {own: 1.0} if own else {}
    return {scope: weight / total for scope, weight in weights.items() if weight > 0}


def _inferred(
    module: Module, computation: Computation, instruction: Instruction, named: Mapping[str, Mapping[Scope, float]]
) -> dict[Scope, float]:
    """The scopes of an op that names none, from the nearest ops along the data flow."""
    own = _own_direction(module, instruction)
    users_first = own in ("forward", "recompute")
    for towards_users in (users_first, not users_first):
        found = _nearest(computation, instruction, named, towards_users)
        if found:
            break
    else:
        caller = module.callers.get(computation.name)
        found = [caller.name] if caller is not None and caller.name in named else []
    shares: dict[Scope, float] = defaultdict(float)
    for name in found:
        for scope, share in named[name].items():
            direction = own if own and scope.stage != "PU" else scope.direction
            shares[dataclasses.replace(scope, direction=direction)] += share / len(found)
    return dict(shares)


def _own_direction(module: Module, instruction: Instruction) -> Direction | None:
    names = [instruction.op_name]
    if instruction.opcode == "fusion":
        names += [inner.op_name for _, inner in module.inside(instruction) if inner.opcode not in _FREE]
    votes = Counter(direction for name in names if (direction := _direction(name)) is not None)
    return votes.most_common(1)[0][0] if votes else None


def _nearest(
    computation: Computation,
    instruction: Instruction,
    named: Mapping[str, Mapping[Scope, float]],
    towards_users: bool,
) -> list[str]:
    """Named ops at the smallest distance, through ops without a name."""
    seen, level = {instruction.name}, [instruction]
    while level:
        following = []
        for each in level:
            neighbours = computation.users[each.name] if towards_users else computation.operands(each)
            for neighbour in neighbours:
                ends = neighbour.opcode == "tuple" and neighbour.is_root
                if neighbour.name not in seen and neighbour.opcode not in ("parameter", "constant") and not ends:
                    seen.add(neighbour.name)
                    following.append(neighbour)
        found = [each.name for each in following if each.name in named]
        if found:
            return found
        level = following
    return []
