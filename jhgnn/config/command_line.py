"""The options of the commands: one for every field of a recipe, and errors of one line."""

import argparse
import typing
from typing import Any, Literal

from jhgnn.config.config import Config
from jhgnn.config.recipe import fields_of, layered, nearest, read_tables, read_toml, section_of, toml_value, type_of
from jhgnn.config.shipped import find_recipe
from jhgnn.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--config` and one option for every field, `--section.field`, to a parser."""
    parser.add_argument(
        "--config",
        metavar="RECIPE",
        help="TOML file, or the name of a shipped recipe, such as han_acm; options override it",
    )
    for section, section_field in fields_of(Config).items():
        section_class = typing.cast(type, section_field.type)
        group = parser.add_argument_group(f"[{section}]", section_class.__doc__)
        for name, field in fields_of(section_class).items():
            hint = type_of(section_class, name)
            shown = toml_value(field.default).replace("%", "%%")
            group.add_argument(
                f"--{section}.{name}",
                dest=f"{section}.{name}",
                default=argparse.SUPPRESS,
                nargs="*" if typing.get_origin(hint) is tuple else None,
                metavar=_metavar(hint),
                help=f"{field.metadata['help'].replace('%', '%%')} (default {shown})",
            )


def add_section(parser: argparse.ArgumentParser, section: type) -> None:
    """Adds an option for every field of a dataclass of options that is no part of a recipe: `--field-name`."""
    for name, field in fields_of(section).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=f"setting.{name}",
            default=argparse.SUPPRESS,
            metavar=_metavar(type_of(section, name)),
            help=f"{field.metadata['help'].replace('%', '%%')} (default {toml_value(field.default)})",
        )


def section_from(options: argparse.Namespace, section: type) -> Any:
    """What `add_section`'s options say.

    Raises:
        InputError: one of them cannot be what is named.
    """
    values = {}
    for dotted, text in vars(options).items():
        kind, _, name = dotted.partition(".")
        if kind == "setting":
            values[name] = _parsed(text, type_of(section, name))
    return section_of(section, values, "command line: ")


def from_options(options: argparse.Namespace) -> Config:
    """The config that parsed options name: the recipe, then the overrides.

    Raises:
        InputError: as `load_recipe`; for an override it names the option.
    """
    recipe = []
    if options.config:
        path = find_recipe(options.config)
        recipe = [(read_tables(path), f"recipe {path}")]
    tables: dict[str, dict[str, Any]] = {}
    for dotted, text in vars(options).items():
        section, _, name = dotted.partition(".")
        if name:
            hint = type_of(typing.cast(type, fields_of(Config)[section].type), name)
            tables.setdefault(section, {})[name] = _parsed(text, hint)
    return layered(*recipe, (tables, "command line"))


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are `InputError`s: one line, no usage block; abbreviations are refused."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter, **kwargs)
        self.formatter_class = argparse.HelpFormatter

    def error(self, message: str) -> typing.NoReturn:
        """Raises the message as an InputError, with the nearest option where one was misspelt."""
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            wrong = (message.removeprefix(prefix).split() or ["''"])[0].partition("=")[0]
            options = [option for action in self._actions for option in action.option_strings]
            raise InputError(f"command line: unknown option {wrong}{nearest(wrong, options)}; see --help")
        raise InputError(f"command line: {message}")


def _metavar(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "{" + ",".join(typing.get_args(hint)) + "}"
    if typing.get_origin(hint) is tuple:
        return "TEXT"
    if hint == float | str:
        return "FLOAT|TEXT"
    return {int: "INT", float: "FLOAT", bool: "{true,false}", str: "TEXT"}[hint]


def _parsed(text: Any, hint: Any) -> Any:
    """A command-line word as the TOML value it stands for; what does not parse stays text and fails the type check."""
    if hint in (int, float, bool):
        try:
            return read_toml(f"value = {text}")["value"]
        except ValueError:
            return text
    return text
