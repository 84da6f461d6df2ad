"""Files that are old or new, never half-written."""

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def write_text(path: Path, text: str) -> None:
    """Writes to a temporary name, syncs and renames: a reader sees the old file or the new one, after a crash too."""
    with _replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_array(path: Path, array: np.ndarray) -> None:
    """A `.npy` file, written as `write_text` does."""
    with _replacing(path) as file:
        np.save(file, array, allow_pickle=False)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file under a temporary name, which takes the place of `path` once it is on the disk, or goes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in a folder reach the disk; file systems that cannot sync a folder are left to themselves."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """JSON with one key a line, through `write_text`; null where a number is not finite, which JSON cannot say."""
    write_text(path, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
