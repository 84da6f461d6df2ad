"""The recipes that come with the package, by their names."""

from pathlib import Path

from jhgnn.config.recipe import nearest
from jhgnn.errors import InputError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
"""Installed, and in a checkout."""


def shipped_recipes() -> dict[str, Path]:
    """Path of each recipe, by name, such as `han_acm`."""
    for place in _PLACES:
        found = {path.stem: path for path in sorted(place.glob("*.toml"))}
        if found:
            return found
    return {}


def find_recipe(text: str) -> Path:
    """The file that `--config` names: a file of that name, or else the shipped recipe.

    Raises:
        InputError: there is neither.
    """
    path = Path(text).expanduser()
    if path.exists() or path.name != text:
        return path
    shipped = shipped_recipes()
    if text not in shipped:
        known = nearest(text, shipped) or f"; shipped are {', '.join(shipped) or 'none'}"
        raise InputError(f"recipe {text}: there is no such file, and no recipe of that name is shipped{known}")
    return shipped[text]
