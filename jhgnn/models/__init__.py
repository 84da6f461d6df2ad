"""The models that come with the package, one file each: `model.name = "han"` is the class `MODEL` of `han.py`."""

import importlib
import pkgutil

from jhgnn.errors import InputError
from jhgnn.nn.model import Model
from jhgnn.nn.relational import RelationalModel
from jhgnn.runtime.own_code import imported


def names() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> type[Model]:
    """The model that a recipe names: one of `names()`, or `MODULE:CLASS` for one of your own.

    Raises:
        InputError: there is none of that name, the module cannot be imported, or it is no `Model`.
    """
    if ":" in name:
        return checked(imported(name, "model.name"), name)
    if name not in names():
        raise InputError(
            f"model.name = {name!r} is not one of {', '.join(names())}; a model of your own is MODULE:CLASS"
        )
    model: type[Model] = importlib.import_module(f"{__name__}.{name}").MODEL
    return model


def checked(found: object, name: str) -> type[Model]:
    """A class that was given as a model.

    Raises:
        InputError: it is no `Model`.
    """
    if not isinstance(found, type) or not issubclass(found, Model):
        raise InputError(f"model.name = {name!r} is no subclass of jhgnn.Model")
    if found is Model:
        raise InputError("model.name: jhgnn.Model is the base of models and has no layers; give a subclass of it")
    if issubclass(found, RelationalModel) and not hasattr(found, "make_layer"):
        raise InputError(f"model.name = {name!r} names no layer; set make_layer in the class to one")
    return found
