"""Code of one's own as a recipe names it: `MODULE:NAME`, such as `my_model:MyModel`."""

import importlib
import operator
from typing import Any

from jhgnn.errors import InputError


def imported(text: str, key: str) -> Any:
    """What `MODULE:NAME` names.

    Args:
        text: a module that Python finds, and a name in it.
        key: of the recipe, which starts the messages.

    Raises:
        InputError: the module cannot be imported, or has no such name.
    """
    module, _, name = text.partition(":")
    try:
        found = importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # the last two: no name, a relative one
        raise InputError(f"{key} = {text!r}: cannot import {module!r}: {error}") from None
    try:
        return operator.attrgetter(name)(found)
    except AttributeError:
        raise InputError(f"{key} = {text!r}: {module!r} has no {name!r}") from None


def name_of(own: Any) -> str:
    """`MODULE:NAME` of a class or function, as a recipe records it; that of a lambda or a local one leads nowhere."""
    named = own if hasattr(own, "__qualname__") else type(own)
    return f"{named.__module__}:{named.__qualname__}"
