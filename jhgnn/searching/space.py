"""What a search may try: fields of a recipe, each with its choices or its range, as a command line writes them."""

import dataclasses
import tomllib
import typing
from collections.abc import Sequence
from typing import Any

from jhgnn.config import Config
from jhgnn.config.recipe import fields_of, nearest, override, type_of
from jhgnn.errors import InputError

FIXED_SECTIONS = ("run", "data", "distributed")
"""Where a run lives, what it learns from and what it runs on, which no score may choose."""
EXAMPLES = "model.hidden=32,64,128, training.learning_rate=1e-4..1e-2 log, or model.dropout=0..0.8"


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One field and what may be tried of it.

    Attributes:
        section, name: of the field, `section.name`.
        choices: values, or none where there is a range.
        low, high: ends of the range, both of which may be tried; int for fields of whole numbers.
        log: whether equal factors are equally likely, instead of equal steps.
    """

    section: str
    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def field(self) -> str:
        return f"{self.section}.{self.name}"

    def samples(self) -> tuple[Any, ...]:
        """All choices, or both ends of the range."""
        return self.choices or (self.low, self.high)


def parse_space(texts: Sequence[str], config: Config) -> tuple[Dimension, ...]:
    """Dimensions from `SECTION.FIELD=CHOICE,...` or `SECTION.FIELD=LOW..HIGH[ log]`, in the order given.

    Raises:
        InputError: no dimension, an unknown field, one given twice or one that a score may not choose, a range of no
            numbers, or a value that the recipe could not hold.
    """
    if not texts:
        raise InputError(f"--search: names no field; give some, such as {EXAMPLES}")
    space = tuple(_dimension(text) for text in texts)
    for number, dimension in enumerate(space):
        if dimension.field in {each.field for each in space[:number]}:
            raise InputError(f"--search: {dimension.field} is given twice; give all of its values in one place")
        for value in dimension.samples():
            override(config, {dimension.section: {dimension.name: value}}, where="--search")
    return space


def _dimension(text: str) -> Dimension:
    dotted, equals, values = text.partition("=")
    section, _, name = dotted.strip().partition(".")
    sections = fields_of(Config)
    if not equals or not values.strip():
        raise InputError(f"--search {text!r}: need FIELD=VALUES, such as {EXAMPLES}")
    if section not in sections:
        raise InputError(f"--search {text!r}: unknown table [{section}]{nearest(section, sections)}")
    if section in FIXED_SECTIONS:
        raise InputError(f"--search {text!r}: [{section}] is the same for all trials; set it by --{dotted.strip()}")
    section_class = typing.cast(type, sections[section].type)
    fields = fields_of(section_class)
    if name not in fields:
        raise InputError(f"--search {text!r}: unknown key {section}.{name}{nearest(name, fields)}")
    hint = type_of(section_class, name)
    hint = float if hint == float | str else hint  # what is no number stays text
    if ".." in values:
        return _range(text, section, name, values, hint)
    choices = tuple(_value(each.strip(), hint) for each in values.split(","))
    if len(set(choices)) < len(choices) or "" in choices:
        raise InputError(f"--search {text!r}: {values!r} repeats a value, or has an empty one")
    return Dimension(section, name, choices)


def _range(text: str, section: str, name: str, values: str, hint: Any) -> Dimension:
    ends, _, rest = values.strip().partition(" ")
    low, high = (_value(each, hint) for each in ends.split("..", 1))
    if hint not in (int, float) or not isinstance(low, int | float) or not isinstance(high, int | float):
        raise InputError(f"--search {text!r}: {ends!r} is no range of numbers; list the choices, between commas")
    if rest.strip() not in ("", "log") or not low < high or (rest and low <= 0):
        raise InputError(
            f"--search {text!r}: need LOW..HIGH with LOW below HIGH, and ' log' after it only where LOW is above 0"
        )
    return Dimension(section, name, low=low, high=high, log=bool(rest.strip()))


def _value(text: str, hint: Any) -> Any:
    """A word as the field's type where it is one; what does not parse is text, which the recipe's checks refuse."""
    if hint in (int, float, bool):
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
        return float(value) if hint is float and type(value) is int else value
    return text
