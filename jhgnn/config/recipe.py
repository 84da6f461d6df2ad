"""Recipes: a `Config` from strict TOML, and back to TOML."""

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jhgnn.config.config import Config
from jhgnn.config.suggested import suggested_for
from jhgnn.errors import InputError


def load_recipe(path: str | Path) -> Config:
    """Reads a TOML recipe strictly. Where it names data but no model, `jhgnn.config.suggested` stands under it.

    Raises:
        InputError: the file cannot be read, is not TOML, or holds an unknown key, a wrong type or an impossible value.
    """
    return layered((read_tables(path), f"recipe {path}"))


def layered(*layers: tuple[Mapping[str, Any], str]) -> Config:
    """The config of nested tables, each with what its errors begin with; a later one goes before an earlier one.

    Raises:
        InputError: as `override`.
    """
    config = override(Config(), suggested_for(*(tables for tables, _ in layers)), where="suggested settings")
    for tables, where in layers:
        config = override(config, tables, where=where)
    return config


def read_tables(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML recipe, whose keys and values nobody has checked.

    Raises:
        InputError: the file cannot be read, or is not TOML.
    """
    try:
        return read_toml(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"recipe {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"recipe {path}: not UTF-8 text at byte {error.start}") from None
    except ValueError as error:
        raise InputError(f"recipe {path}: not TOML: {error}") from None


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: it is not TOML, holds a number of thousands of digits, or nests too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables are nested too deeply") from None


def override(config: Config, tables: Mapping[str, Any], where: str) -> Config:
    """The config with the values of nested tables in place of its own; checked as `load_recipe` says."""
    sections = {}
    for section, values in tables.items():
        current = getattr(config, section, None) if section in fields_of(Config) else None
        if current is None:
            raise InputError(f"{where}: unknown table [{section}]{nearest(section, fields_of(Config))}")
        if not isinstance(values, Mapping):
            raise InputError(f"{where}: {section} must be a table, not {values!r}")
        fields = fields_of(type(current))
        changes = {}
        for key, value in values.items():
            if key not in fields:
                raise InputError(f"{where}: unknown key {section}.{key}{nearest(key, fields)}")
            try:
                changes[key] = _checked(value, type(current), fields[key], f"{where}: {section}.{key}")
            except InputError:
                raise
            except ValueError as error:  # a hexadecimal number that is too long to be shown
                raise InputError(f"{where}: {section}.{key}: {error}") from None
        sections[section] = dataclasses.replace(current, **changes)
    try:
        return dataclasses.replace(config, **sections)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def section_of(section: type, values: Mapping[str, Any], where: str) -> Any:
    """A dataclass of options that is no part of a recipe, from some of its values, checked as those of a recipe are.

    Raises:
        InputError: an unknown name, a wrong type or an impossible value.
    """
    fields = fields_of(section)
    for key in values:
        if key not in fields:
            raise InputError(f"{where}unknown setting {key!r}{nearest(key, fields)}")
    return section(**{key: _checked(value, section, fields[key], f"{where}{key}") for key, value in values.items()})


def to_toml(config: Config) -> str:
    """The whole recipe as TOML; `load_recipe` reads it back to an equal config."""
    lines = []
    for section in fields_of(Config):
        lines.append(f"[{section}]")
        values = getattr(config, section)
        lines += [f"{name} = {toml_value(getattr(values, name))}" for name in fields_of(type(values))]
        lines.append("")
    return "\n".join(lines)


def fields_of(section: type) -> dict[str, dataclasses.Field]:
    return {field.name: field for field in dataclasses.fields(section)}


def type_of(section: type, name: str) -> Any:
    return typing.get_type_hints(section)[name]


def nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}" if len(known) < 20 else ""


def _checked(value: Any, section: type, field: dataclasses.Field, where: str) -> Any:
    hint = type_of(section, field.name)
    if field.metadata["canonical"] is not None:
        try:
            return field.metadata["canonical"](value, where)
        except ValueError as error:
            raise InputError(str(error)) from None
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise InputError(f"{where} = {value!r} is not one of {', '.join(map(repr, choices))}")
        return value
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} = {value!r} must be a list of strings")
        return tuple(_list_element(element, where) for element in value)
    if isinstance(hint, types.GenericAlias) or not isinstance(hint, type):
        raise TypeError(f"{where}: config fields cannot have type {hint}")
    if hint is float and type(value) is int:
        value = _as_float(value)
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
        raise InputError(f"{where} = {value!r} must be {names[hint]}")
    if hint is str:
        _check_text(value, where)
    bounds = field.metadata
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} = {value!r} must be a finite number")
    if isinstance(value, int | float) and not isinstance(value, bool):
        rules = (
            ("minimum", "at least", lambda limit: value >= limit),
            ("above", "above", lambda limit: value > limit),
            ("maximum", "at most", lambda limit: value <= limit),
            ("below", "below", lambda limit: value < limit),
        )
        for bound, words, holds in rules:
            if bounds[bound] is not None and not holds(bounds[bound]):
                raise InputError(f"{where} = {value!r} must be {words} {bounds[bound]}")
    return value


def _check_text(text: str, where: str) -> None:
    """Refuses what a recipe cannot hold: names of files that are no text, and NUL, which no name has."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"{where} = {text!r} must be text of UTF-8 without NUL")


def _as_float(value: int) -> float:
    """Infinite beyond the range of floats, which the check for finite numbers then refuses."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _list_element(element: Any, where: str) -> str:
    """A string, or a nested list of strings (a metapath as a sequence), joined by commas."""
    if isinstance(element, list) and element and all(isinstance(step, str) for step in element):
        return ",".join(element)
    if not isinstance(element, str) or not element:
        raise InputError(f"{where} holds {element!r}; need strings or lists of strings")
    _check_text(element, where)
    return element


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c for c in escaped)
        return f'"{shown}"'
    return repr(value)
