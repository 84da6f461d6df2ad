"""Fan-outs as a recipe and a command line write them, in one canonical line of text.

`25,20` is one number a hop from the seeds outwards, `10` one for all hops, `all` every neighbour, and
`default=25,20; cites=all,5` a table by relation. TOML may give numbers, lists and tables instead.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

ALL = "all"
PerHop: TypeAlias = int | list[int]


def to_text(value: Any, where: str) -> str:
    """The canonical line for a TOML value or a command-line word.

    Raises:
        ValueError: neither a number, a list of numbers, a table of those, nor such a line; the message says where.
    """
    table = parse(value, where) if isinstance(value, str) else value
    if isinstance(table, Mapping):
        return "; ".join(f"{name}={_hops_text(entry, f'{where}.{name}')}" for name, entry in table.items())
    return _hops_text(table, where)


def parse(text: str, where: str) -> PerHop | dict[str, PerHop]:
    """What `jhgnn.sampling.fan_out.fan_outs` reads: a number, a list or a table, with -1 for `all`.

    Raises:
        ValueError: as `to_text`.
    """
    if "=" not in text:
        return _hops(text, where)
    table = {}
    for part in text.split(";"):
        name, _, entry = part.rpartition("=")
        if not name.strip():
            raise ValueError(f"{where} holds {part.strip()!r}; need RELATION=NUMBERS, joined by ';'")
        table[name.strip()] = _hops(entry, f"{where}.{name.strip()}")
    return table


def _hops(text: str, where: str) -> PerHop:
    numbers = [_number(word.strip(), where) for word in text.split(",")]
    return numbers if len(numbers) > 1 else numbers[0]


def _number(word: str, where: str) -> int:
    if word == ALL:
        return -1
    try:
        return int(word)
    except ValueError:
        raise ValueError(
            f"{where} holds {word!r}; need whole numbers or 'all', one a hop, such as 25,20, or a table by relation"
        ) from None


def _hops_text(value: Any, where: str) -> str:
    entries = value if isinstance(value, list | tuple) and value else [value]
    for entry in entries:
        if entry != ALL and (isinstance(entry, bool) or not isinstance(entry, int)):
            raise ValueError(f"{where} holds {entry!r}; need whole numbers or 'all', one a hop, or a table by relation")
    return ",".join(ALL if entry in (ALL, -1) else str(entry) for entry in entries)
