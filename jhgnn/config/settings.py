"""Settings as Python gives them: fields of a recipe by their names alone, or whole sections as dictionaries."""

import os
from collections.abc import Mapping
from typing import Any

from jhgnn.config.config import Config
from jhgnn.config.recipe import fields_of, nearest
from jhgnn.errors import InputError

PREFERRED = {"seed": "run"}
"""The section that is meant by a name of several sections where no section is given."""


def by_section(settings: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Tables by section, as `jhgnn.config.recipe.override` takes them, which checks the values.

    Args:
        settings: a field of a recipe, such as `hidden=64`, or a section, such as `sampling={"batch_size": 1024}`.
        where: starts the messages.

    Raises:
        InputError: a name is no field or that of several, or a field is given twice.
    """
    sections, homes = fields_of(Config), _homes()
    tables: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and name not in homes:
            if name not in sections:
                raise InputError(f"{where}: unknown table [{name}]{nearest(name, sections)}")
            fields = dict(value)
        elif name in sections:
            raise InputError(f"{where}: {name} must be a table, not {_shown(value)}")
        else:
            fields = {name: value}
        section = name if name in sections else _home(name, homes, where)
        own = tables.setdefault(section, {})
        for field, given in fields.items():
            if field in own:
                raise InputError(f"{where}: {section}.{field} is given twice; leave one of them out")
            own[field] = _plain(given)
    return tables


def _homes() -> dict[str, list[str]]:
    """Field -> the sections that have it."""
    homes: dict[str, list[str]] = {}
    for section, field in fields_of(Config).items():
        for name in fields_of(field.type):  # type: ignore[arg-type]
            homes.setdefault(name, []).append(section)
    return homes


def _home(name: str, homes: Mapping[str, list[str]], where: str) -> str:
    found = homes.get(name, [])
    if not found:
        raise InputError(f"{where}: unknown key {name}{nearest(name, [*homes, *fields_of(Config)])}")
    if len(found) > 1 and name not in PREFERRED:
        ways = " or ".join(f"{section}={{{name!r}: ...}}" for section in found)
        raise InputError(f"{where}: {name} is a key of {' and '.join(found)}; give {ways}")
    return PREFERRED.get(name, found[0])


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python number, a path as text; everything else as it is."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 else value


def _shown(value: Any) -> str:
    """A value in a message: short ones whole, others by their type."""
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
