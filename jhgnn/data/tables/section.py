"""Section: a table of a schema read strictly, key by key; what is wrong names the table, the key and the value."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jhgnn.config.recipe import nearest
from jhgnn.errors import InputError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Section:
    """One table: the one called `path` in `file`. Its methods read a key each; `done` refuses those that none has read.

    Raises:
        InputError: it is no table; and by each method, that a value is not what it must be.
    """

    def __init__(self, file: str, path: tuple[str, ...], values: Any) -> None:
        dotted = ".".join(name if _BARE.fullmatch(name) else f'"{name}"' for name in path)
        self.where = f"{file} [{dotted}]" if path else file
        if not isinstance(values, Mapping):
            raise InputError(f"{self.where} is {values!r}; need a table")
        self._file, self._path = file, path
        self._values = dict(values)
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def error(self, message: str) -> InputError:
        return InputError(f"{self.where}: {message}")

    def take(self, key: str, default: Any = None) -> Any:
        self._known.append(key)
        return self._values.pop(key, default)

    def text(self, key: str) -> str | None:
        """A non-empty string, or None where it is left out."""
        value = self.take(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error(f"{key} = {value!r} must be a non-empty string")
        return value

    def needed_text(self, key: str, what: str) -> str:
        value = self.text(key)
        if value is None:
            raise self.error(f"{key} is missing; need {what}")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A string, or a list of strings, as a tuple; None where it is left out."""
        value = self.take(key)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, Sequence) or not listed or not all(isinstance(each, str) for each in listed):
            raise self.error(f"{key} = {value!r} must be a string or a list of strings")
        return tuple(listed)

    def distinct_texts(self, key: str) -> tuple[str, ...] | None:
        """As `texts`, each of which stands once."""
        listed = self.texts(key)
        if listed is not None and len(set(listed)) < len(listed):
            twice = next(each for each in listed if listed.count(each) > 1)
            raise self.error(f"{key} = {list(listed)!r} names {twice!r} twice; name each once")
        return listed

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.take(key, default)
        if value not in choices:
            raise self.error(f"{key} = {value!r} is not one of {', '.join(map(repr, choices))}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} = {value!r} must be true or false")
        return value

    def whole(self, key: str, default: int, minimum: int, maximum: int) -> int:
        value = self.take(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.error(f"{key} = {value!r} must be a whole number from {minimum:,} to {maximum:,}")
        return value

    def tables(self, key: str) -> list[tuple[str, "Section"]]:
        """The tables below a key, by name."""
        below = self.table(key)
        if below is None:
            return []
        return [
            (str(name), Section(self._file, (*below._path, str(name)), values))
            for name, values in below._values.items()
        ]

    def values(self, key: str) -> dict[str, Any]:
        """The keys and values below a key."""
        below = self.table(key)
        return {} if below is None else below._values

    def table(self, key: str) -> "Section | None":
        value = self.take(key)
        return None if value is None else Section(self._file, (*self._path, key), value)

    def done(self) -> None:
        """Raises InputError where a key was not read."""
        for key in self._values:
            raise self.error(f"unknown key {key!r}{nearest(str(key), self._known)}")
