"""A share that a recipe names or leaves to a measurement."""

import math
from typing import Any

AUTO = "auto"


def to_share(value: Any, where: str) -> float | str:
    """A number from 0 to 1, from a number or its text, or `AUTO`.

    Raises:
        ValueError: anything else; the message says where.
    """
    if value == AUTO:
        return AUTO
    share = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            share = float(value)
        except (ValueError, OverflowError):
            share = math.nan
    if not 0 <= share <= 1:
        raise ValueError(f"{where} = {value!r} must be a number from 0 to 1, or 'auto'")
    return share
