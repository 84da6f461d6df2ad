"""Size and CRC-32 of the files of a checkpoint, by which a damaged one is known."""

import os
import zlib
from pathlib import Path

from jhgnn.runtime.files import sync_folder

DIGESTS = "digests.json"
"""The list of them, which is not in the list."""


def digests(path: Path, *, sync: bool = False) -> dict[str, list[int]]:
    """Size and CRC-32 of every file below a folder, by its path in it; with `sync`, once they are on the disk."""
    inside = sorted(path.rglob("*"))
    files = [file for file in inside if file.is_file() and file.name != DIGESTS]
    found = {str(file.relative_to(path)): digest(file, sync=sync) for file in files}
    if sync:
        for folder in (path, *(each for each in inside if each.is_dir())):
            sync_folder(folder)
    return found


def digest(file: Path, *, sync: bool) -> list[int]:
    """Size and CRC-32 of a file, read piece by piece: a table of embeddings is as large as memory allows."""
    value = 0
    with file.open("rb") as opened:
        while piece := opened.read(2**22):
            value = zlib.crc32(piece, value)
        if sync:
            os.fsync(opened.fileno())
        return [os.fstat(opened.fileno()).st_size, value]
