"""Amounts of memory as a recipe and a command line write them: bytes, or a number with a unit."""

import re
from typing import Any

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def to_bytes(value: Any, where: str) -> int:
    """Bytes from a whole number or text such as `12GiB`, `500 MB` or `1e9`.

    Raises:
        ValueError: anything else, or less than 0; the message says where.
    """
    found = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\+?\d+)?)\s*([A-Za-z]*)\s*", value)
        unit = _UNITS.get(match.group(2).upper()) if match else None
        found = float(match.group(1)) * unit if match and unit else None
    if found is None or found < 0:
        raise ValueError(f"{where} = {value!r} must be a number of bytes, or text such as '12GiB' or '500MB'")
    return int(found)
