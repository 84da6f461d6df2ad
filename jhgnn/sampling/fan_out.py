"""Fan-outs as recipes write them: a number, a list per hop, or a table per relation of either."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from jhgnn.errors import InputError
from jhgnn.graph.schema import Relation, Schema
from jhgnn.sampling.draw import MAX_FAN_OUT

FanOut: TypeAlias = int | Sequence[int] | Mapping[str, int | Sequence[int]]
"""-1 keeps all neighbours, 0 leaves the relation out of a hop."""

DEFAULT = "default"


def fan_outs(value: FanOut, schema: Schema, num_hops: int, where: str = "fan_out") -> dict[Relation, tuple[int, ...]]:
    """How many neighbours each relation draws at each hop, from the seeds outwards.

    Args:
        value: a number for all hops and relations, `num_hops` numbers, or a table from `source:name:target` (or a
            name that is unique) to either; its key `default` serves the relations not named (left out without it).
        where: the recipe key, for messages.

    Raises:
        InputError: not a whole number from -1 to 1024, a list of the wrong length, or an unknown or ambiguous relation.
    """
    if not isinstance(value, Mapping):
        per_hop = _per_hop(value, num_hops, where)
        return dict.fromkeys(schema.relations, per_hop)
    table = dict.fromkeys(schema.relations, (0,) * num_hops)
    if DEFAULT in value:
        table = dict.fromkeys(schema.relations, _per_hop(value[DEFAULT], num_hops, f"{where}.{DEFAULT}"))
    given: set[Relation] = set()
    for name, entry in value.items():
        if name == DEFAULT:
            continue
        found = [relation for relation in schema.relations if name in (str(relation), relation.name)]
        if len(found) != 1:
            what = "is ambiguous" if found else "is no relation"
            known = ", ".join(str(relation) for relation in found or schema.relations)
            raise InputError(f"{where}: {name!r} {what}; write one of {known}")
        if found[0] in given:
            raise InputError(f"{where}: relation {str(found[0])!r} is given twice; give it once")
        given.add(found[0])
        table[found[0]] = _per_hop(entry, num_hops, f"{where}.{name}")
    return table


def _per_hop(value: object, num_hops: int, where: str) -> tuple[int, ...]:
    if isinstance(value, int):
        return (_number(value, where),) * num_hops
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"{where} is {value!r}; need a whole number or a list of {num_hops}, one a hop")
    if len(value) != num_hops:
        raise InputError(
            f"{where} has {len(value)} numbers for {num_hops} hops; need {num_hops}, from the seeds outwards"
        )
    return tuple(_number(entry, where) for entry in value)


def _number(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MAX_FAN_OUT:
        raise InputError(
            f"{where} holds {value!r}; need a whole number from 0 to {MAX_FAN_OUT}, or -1 for all neighbours"
        )
    return value
