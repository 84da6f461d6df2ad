"""Files that are old or new, never half-written."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_text(path: Path, text: str) -> None:
    """Writes to a temporary name and renames: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_array(path: Path, array: np.ndarray) -> None:
    """A `.npy` file, written to a temporary name and renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    temporary.replace(path)


def write_json(path: Path, content: Any) -> None:
    """JSON with one key a line, through `write_text`; null where a number is not finite, which JSON cannot say."""
    write_text(path, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
