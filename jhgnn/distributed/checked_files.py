"""Files of a folder of parts: written and synced with their size and CRC-32, and compared with these when read."""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jhgnn.errors import InputError


def write_checked_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Writes an `.npy` file, synced; its size in bytes and its CRC-32."""
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "crc32": file_crc32(path)}


def write_checked_json(path: Path, content: dict[str, Any]) -> int:
    """Writes a JSON file, synced; its CRC-32."""
    data = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return zlib.crc32(data)


def file_crc32(path: Path) -> int:
    """CRC-32 of a whole file, read in blocks of 16 MiB."""
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            checksum = zlib.crc32(block, checksum)
    return checksum


def check_file(path: Path, written: Mapping[str, Any], listed_in: str, *, verify: bool = True) -> None:
    """Compares a file with its entry in the list of files that was written with it.

    Args:
        path: of the file.
        written: its `bytes` and `crc32`.
        listed_in: name of the file that has the list, for messages.
        verify: read the file and compare its CRC-32; else its size alone.

    Raises:
        InputError: it is missing, or of another size or checksum.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing, but {listed_in} names it")
    size = path.stat().st_size
    if size != written["bytes"]:
        raise InputError(f"{path} has {size} bytes; {written['bytes']} were written")
    if verify and (checksum := file_crc32(path)) != written["crc32"]:
        raise InputError(
            f"{path} has the checksum {checksum:08x}; {written['crc32']:08x} was written: the file is damaged, copy it"
            " again"
        )
