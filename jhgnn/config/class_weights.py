"""Weights of classes as a recipe and a command line write them, in one canonical line of text."""

import json
import math
from collections.abc import Mapping
from typing import Any

BALANCED = "balanced"


def class_weights_text(value: Any, where: str) -> str:
    """The canonical line: empty, `balanced`, or a JSON object of weights by class.

    Args:
        value: a TOML table, or text: `balanced`, `CLASS=WEIGHT,...`, or the canonical line itself.
        where: starts the message.

    Raises:
        ValueError: it is none of these, or a weight is not a positive number.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in ("", BALANCED):
            return text
        value = _parsed(text, where)
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} = {value!r} must be {BALANCED!r}, or a table of weights by class")
    weights = {}
    for name, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"{where}: the weight of class {name!r} is {weight!r}; need a number above 0")
        weights[str(name)] = float(weight)
    return json.dumps(weights, ensure_ascii=False) if weights else ""


def by_class(text: str) -> dict[str, float]:
    """The weights of a canonical line that is neither empty nor `balanced`."""
    return dict(json.loads(text))


def _parsed(text: str, where: str) -> Any:
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where} = {text!r} is no table of weights: {error}") from None
    found = {}
    for part in text.split(","):
        name, equals, weight = part.rpartition("=")
        try:
            found[name.strip()] = float(weight)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise ValueError(f"{where} = {text!r} must be {BALANCED!r}, or CLASS=WEIGHT,...; {part.strip()!r} is not")
    return found
